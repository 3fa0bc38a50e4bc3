/* symm_run.c - symm-run COMMAND [ARGUMENTS]: runs a program that uses NCCL or MPI, with symm in
 * NCCL's place and before MPI's collectives. It sets what the loader, vLLM and SGLang look at, says
 * in a line what it found, and becomes the command. One thread. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symm.h"

#ifndef SYMM_RUN_LIB
#define SYMM_RUN_LIB "../lib/nccl/libnccl.so.2" /* from the folder of this program */
#endif
#define MPI_LIB "../lib/libsymm-pmpi.so" /* is there where it was built with Open MPI */

enum { REFUSED = 2, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

__attribute__((format(printf, 2, 3), noreturn)) static void refuse(int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("symm-run: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(code);
}

/* ---- the library ----------------------------------------------------------------------------- */

/* 0: it is not there. */
static int find_library(const char *name, char *path) {
    char self[PATH_MAX], beside[2 * PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) refuse(REFUSED, "cannot find out where it is: %s", strerror(errno));
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(beside, sizeof beside, "%s/%s", self, name);
    if (!realpath(beside, path)) {
        snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, beside);
        return 0;
    }
    if (strpbrk(path, ": "))
        refuse(REFUSED, "%s: LD_PRELOAD takes no path with a colon or a space in it", path);
    return 1;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int is_program(const char *path) {
    struct stat st;
    return !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode);
}

/* As execvp looks for it: a folder without a name is the one that we are in, and without PATH it is
 * the system's. */
static void find_command(const char *name, char *path) {
    const char *dirs = getenv("PATH");
    if (!dirs) dirs = "/bin:/usr/bin";
    if (strchr(name, '/')) {
        if (access(name, F_OK)) refuse(NOT_FOUND, "%s: %s", name, strerror(errno));
        if (!is_program(name)) refuse(NOT_EXECUTABLE, "%s is no program", name);
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    for (size_t n; *name; dirs += n + 1) {
        n = strcspn(dirs, ":");
        snprintf(path, PATH_MAX, "%.*s/%s", n ? (int)n : 1, n ? dirs : ".", name);
        if (is_program(path)) return;
        if (!dirs[n]) break;
    }
    refuse(NOT_FOUND, "there is no command %s", name);
}

typedef struct {
    const char *bytes;
    size_t size;
} image;

static image map_file(const char *path) {
    struct stat st;
    image im = {NULL, 0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return im; /* executable but not readable: the kernel runs it all the same */
    if (!fstat(fd, &st) && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) im = (image){p, (size_t)st.st_size};
    }
    close(fd);
    return im;
}

static const void *at(const image *im, uint64_t offset, uint64_t bytes) {
    return offset <= im->size && bytes <= im->size - offset ? im->bytes + offset : NULL;
}

static const Elf64_Phdr *segment(const image *im, uint32_t type) {
    const Elf64_Ehdr *e = at(im, 0, sizeof *e);
    for (unsigned i = 0; e && i < e->e_phnum; i++) {
        const Elf64_Phdr *p = at(im, e->e_phoff + (uint64_t)i * sizeof *p, sizeof *p);
        if (p && p->p_type == type) return p;
    }
    return NULL;
}

/* Where in the file an address of the program lies; 0: nowhere. */
static uint64_t in_file(const image *im, uint64_t address) {
    const Elf64_Ehdr *e = at(im, 0, sizeof *e);
    for (unsigned i = 0; e && i < e->e_phnum; i++) {
        const Elf64_Phdr *p = at(im, e->e_phoff + (uint64_t)i * sizeof *p, sizeof *p);
        if (p && p->p_type == PT_LOAD && address >= p->p_vaddr &&
            address - p->p_vaddr < p->p_filesz)
            return address - p->p_vaddr + p->p_offset;
    }
    return 0;
}

/* name: how the library's name begins */
static int needs(const image *im, const char *name) {
    const Elf64_Phdr *dynamic = segment(im, PT_DYNAMIC);
    const uint64_t n = dynamic ? dynamic->p_filesz / sizeof(Elf64_Dyn) : 0;
    const Elf64_Dyn *d = n ? at(im, dynamic->p_offset, n * sizeof *d) : NULL;
    uint64_t strings = 0;
    for (uint64_t i = 0; d && i < n; i++)
        if (d[i].d_tag == DT_STRTAB) strings = in_file(im, d[i].d_un.d_ptr);
    for (uint64_t i = 0; d && strings && i < n && d[i].d_tag != DT_NULL; i++) {
        if (d[i].d_tag != DT_NEEDED) continue;
        const char *s = at(im, strings + d[i].d_un.d_val, strlen(name));
        if (s && !memcmp(s, name, strlen(name))) return 1;
    }
    return 0;
}

/* What the command is to the loader, or why no library can be put into it. */
typedef struct {
    int nccl, mpi; /* needs them itself */
    const char *else_what;
} found;
static found look_at(const char *path) {
    struct stat st;
    const image im = map_file(path);
    const Elf64_Ehdr *e = at(&im, 0, sizeof *e);
    if (!stat(path, &st) && (st.st_mode & (S_ISUID | S_ISGID)))
        refuse(REFUSED, "%s runs with rights of its own (setuid): it takes no library from here",
               path);
    if (!e || memcmp(e->e_ident, ELFMAG, SELFMAG))
        return (found){.else_what = "a script: what it starts uses it"};
    if (e->e_ident[EI_CLASS] != ELFCLASS64)
        refuse(REFUSED, "%s is no 64-bit program: symm is", path);
    if (!segment(&im, PT_INTERP))
        refuse(REFUSED, "%s is linked statically: nothing can take NCCL's place in it", path);
    return (found){.nccl = needs(&im, "libnccl.so"),
                   .mpi = needs(&im, "libmpi.so") || needs(&im, "libmpi_"), /* Fortran's */
                   .else_what = "which does not need NCCL itself: what it loads or starts uses it"};
}

/* ---- the environment ------------------------------------------------------------------------- */

/* Puts `first` before what is there. */
static void put_first(const char *name, const char *first) {
    const char *old = getenv(name);
    char *both = NULL;
    if (asprintf(&both, "%s%s%s", first, old && *old ? ":" : "", old ? old : "") < 0 ||
        setenv(name, both, 1))
        refuse(REFUSED, "no memory for %s", name);
    free(both);
}

/* mpi: NULL where it is not there. */
static void set_environment(const char *nccl, const char *mpi) {
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", nccl);
    *strrchr(dir, '/') = 0;
    if (mpi) put_first("LD_PRELOAD", mpi);
    put_first("LD_PRELOAD", nccl);     /* PyTorch finds its own NCCL by a path in itself */
    put_first("LD_LIBRARY_PATH", dir); /* who opens libnccl.so.2 by its name, in a new namespace */
    setenv("VLLM_NCCL_SO_PATH", nccl, 1); /* these open it by path, beside PyTorch's */
    setenv("SGLANG_NCCL_SO_PATH", nccl, 1);
}

int main(int argc, char **argv) {
    char nccl[PATH_MAX], mpi[PATH_MAX], command[PATH_MAX];
    if (argc < 2 || argv[1][0] == '-')
        refuse(REFUSED,
               "usage: symm-run COMMAND [ARGUMENTS], as in symm-run ./all_reduce_perf -g 2");
    if (!find_library(SYMM_RUN_LIB, nccl)) refuse(REFUSED, "%s: %s", nccl, strerror(errno));
    const int has_mpi = find_library(MPI_LIB, mpi);
    find_command(argv[1], command);
    const found it = look_at(command);
    if (it.mpi && !it.nccl && !has_mpi)
        refuse(REFUSED, "%s needs MPI, and %s is not there: symm was built without Open MPI",
               command, mpi);
    if (it.mpi && !it.nccl)
        fprintf(
            stderr,
            "symm-run: MPI's collectives go through %s (symm %d.%d.%d) in %s, which needs MPI\n",
            mpi, SYMM_MAJOR, SYMM_MINOR, SYMM_PATCH, command);
    else
        fprintf(stderr, "symm-run: NCCL is %s (symm %d.%d.%d) in %s, %s\n", nccl, SYMM_MAJOR,
                SYMM_MINOR, SYMM_PATCH, command,
                it.nccl ? "which needs libnccl.so.2" : it.else_what);
    set_environment(nccl, has_mpi && (it.mpi || !it.nccl) ? mpi : NULL);
    execvp(command, argv + 1); /* which gives a script without a first line to the shell */
    refuse(NOT_EXECUTABLE, "%s: %s", command, strerror(errno));
}
