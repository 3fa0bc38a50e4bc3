/* emu_device_debug.cc - the kernels of emu_device.cc as a program's debug build has them: indices
 * are checked, and grids are compared. */
#define SYMM_DEVICE_DEBUG
#define emu_device_find emu_device_debug_find
/* their names must differ from the others' */
#define emu_dev_barriers emu_debug_barriers
#define emu_dev_apart    emu_debug_apart
#define emu_dev_fill     emu_debug_fill
#define emu_dev_gather   emu_debug_gather
#define emu_dev_signals  emu_debug_signals
#define emu_dev_counts   emu_debug_counts
#define emu_dev_polls    emu_debug_polls
#define emu_dev_packets  emu_debug_packets
#define emu_dev_lines    emu_debug_lines
#define emu_dev_copy     emu_debug_copy
#define emu_dev_sum_f32  emu_debug_sum_f32
#define emu_dev_sum_f16  emu_debug_sum_f16
#define emu_dev_sum_bf16 emu_debug_sum_bf16
#include "emu_device.cc"
