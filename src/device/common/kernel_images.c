/* kernel_images.c - the GPU kernels' fat binaries as data of the library. The build says with
 * SYMM_HAVE_KERNELS that they exist and with SYMM_FATBINS where, and for which compute
 * capabilities with SYMM_ARCHS. Constant. */
#include "../common/kernels.h"

#ifdef SYMM_TESTING
int symm_test_images = -1;
#define HAVE(real) (symm_test_images < 0 ? (real) : symm_test_images)
#define NO_IMAGE   "no image"
#else
#define HAVE(real) (real)
#define NO_IMAGE   0
#endif

#ifdef SYMM_HAVE_KERNELS

/* Aligned as the driver reads it. */
#define IMAGE(name)                                                                          \
    __asm__(".section .rodata\n.balign 64\n.hidden symm_image_" #name                        \
            "\n.global symm_image_" #name "\nsymm_image_" #name ":\n.incbin \"" SYMM_FATBINS \
            "/" #name ".fatbin\"\n.byte 0\n.previous\n");                                    \
    extern const char symm_image_##name[] __attribute__((visibility("hidden")));

IMAGE(i8)
IMAGE(u8)
IMAGE(i32)
IMAGE(u32)
IMAGE(i64)
IMAGE(u64)
IMAGE(f16)
IMAGE(f32)
IMAGE(f64)
IMAGE(bf16)
IMAGE(e4m3)
IMAGE(e5m2)
IMAGE(move)
#define AT(name) symm_image_##name

int symm_kernel_have_images(void) {
    return HAVE(1);
}

const char *symm_kernel_archs(void) {
    return SYMM_ARCHS;
}
#else
#define AT(name) NO_IMAGE

int symm_kernel_have_images(void) {
    return HAVE(0);
}

const char *symm_kernel_archs(void) {
    return "";
}
#endif

/* SYMM_CUDA_OFF: the build was told so. */
const char *symm_kernel_why_none(void) {
    if (symm_kernel_have_images()) return "";
#ifdef SYMM_CUDA_OFF
    return "this build has no GPU kernels (it was made with CUDA=0)";
#else
    return "this build has no GPU kernels (no CUDA compiler was found)";
#endif
}

const symm_kernel_image symm_kernel_images[SYMM_IMAGES] = {
    {"i8", AT(i8)},     {"u8", AT(u8)},     {"i32", AT(i32)}, {"u32", AT(u32)}, {"i64", AT(i64)},
    {"u64", AT(u64)},   {"f16", AT(f16)},   {"f32", AT(f32)}, {"f64", AT(f64)}, {"bf16", AT(bf16)},
    {"e4m3", AT(e4m3)}, {"e5m2", AT(e5m2)}, {"", AT(move)}};
