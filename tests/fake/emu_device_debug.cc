/* emu_device_debug.cc - the kernels of emu_device.cc as a program's debug build has them: indices
 * are checked, and grids are compared. */
#define SYMM_DEVICE_DEBUG
#define DEVICE_FIND emu_device_debug_find
#include "emu_device.cc"
