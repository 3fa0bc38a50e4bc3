# Compiler, flags and variants. Must-haves live in variables of our own, so CFLAGS, CPPFLAGS and
# LDFLAGS stay the user's, from the command line as well as from the environment (appending to an
# exported CFLAGS would grow it in each sub-make).

#> CC=clang            compiler (default gcc)
#> CXX=clang++         compiler of unit_*kernels, left out without one (default g++)
#> CFLAGS, CPPFLAGS, LDFLAGS   the user's, added to what the build needs
#> WERROR=1            warnings are errors (make check sets it; never for who only builds)
#> DEBUG=1 ASAN=1 TSAN=1 UBSAN=1 COV=1   variants; each has its own directories, build/*-<variant>
#> CUDA=auto|0|1        GPU kernels: where nvcc is, never, or else fail
#> CUDA_ARCHS='90 100'  compute capabilities they are built for (default 90)
#> NVCC=/path/to/nvcc  their compiler (default: of CUDA_HOME, of PATH, /usr/local/cuda's)
#> MPICC=mpicc.mpich OUT=build/mpich   another MPI than that of PATH, in a folder of its own
#> PREFIX=/usr/local DESTDIR=   where install puts things
#> V=1                 print whole commands
CC        := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
CXX       := $(if $(filter default undefined,$(origin CXX)),g++,$(CXX))
AR        := $(if $(filter default undefined,$(origin AR)),ar,$(AR))
MPICC     ?= mpicc
MPIRUN    ?= mpirun
PREFIX    ?= /usr/local
OUT       := build

# ---- quiet output ----
V ?= 0
Q   := $(if $(filter 1,$(V)),,@)
say  = $(if $(filter 1,$(V)),:,printf '  %-8s%s\n' '$(1)' '$(2)')

# ---- variants ----
comma   := ,
empty   :=
space   := $(empty) $(empty)
on       = $(filter-out 0,$($(1)))
VARIANT := $(subst $(space),-,$(strip $(if $(call on,DEBUG),debug) \
             $(if $(call on,ASAN),asan) $(if $(call on,TSAN),tsan) \
             $(if $(call on,UBSAN),ubsan) $(if $(call on,COV),cov) $(if $(call on,FUZZ),fuzz)))
S       := $(if $(VARIANT),-$(VARIANT))
ifneq ($(and $(call on,ASAN),$(call on,TSAN)),)
$(error ASAN=1 and TSAN=1 cannot be built into one program)
endif

SANITIZERS := $(strip $(if $(call on,ASAN),address) $(if $(call on,TSAN),thread) \
                $(if $(call on,UBSAN),undefined))
SAN_FLAGS  := $(if $(SANITIZERS),-fsanitize=$(subst $(space),$(comma),$(SANITIZERS)) \
                -fno-omit-frame-pointer)
# A finding must end the program: UBSan would else only print.
SAN_FLAGS  += $(if $(call on,UBSAN),-fno-sanitize-recover=undefined)
SAN_FLAGS  += $(if $(call on,FUZZ),-fsanitize=fuzzer-no-link)

# Kernels and reductions are where the time goes: -O3, except where somebody wants to step through
# them.
OPT        := $(if $(call on,DEBUG),-O0,-O2)
OPT_DEVICE := $(if $(call on,DEBUG),-O0,-O3)

CFLAGS ?= -g
WARN      := -Wall -Wextra$(if $(call on,WERROR), -Werror)
BASE      := -std=gnu11 $(WARN) -fvisibility=hidden -fPIC -pthread $(SAN_FLAGS) \
             $(if $(call on,COV),--coverage)
DEPS       = -MMD -MP -MT $@ -MF $(@:.o=.d)
ALL_CFLAGS   = $(OPT) $(CFLAGS) $(BASE)
ALL_CPPFLAGS = -Iinclude -Isrc $(CPPFLAGS)
ALL_LDFLAGS  = $(LDFLAGS) -pthread -ldl $(SAN_FLAGS) $(if $(call on,COV),--coverage)
# The sanitizers' symbols are resolved by the program, not by the library.
NO_UNDEFINED := $(if $(SANITIZERS),,-Wl$(comma)-z$(comma)defs)

# ---- what this machine can build ----
MACHINE  := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
# The wrapper must work, not only exist: a lone mpicc without its headers would break the build in
# the middle.
HAVE_MPI := $(shell printf '\043include <mpi.h>\n' | $(MPICC) -x c -E - >/dev/null 2>&1 && echo 1)
# Whatever compiler the wrapper was configured for, ours is used (Open MPI's and MPICH's names for
# that).
WITH_MPI := OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC)

# The CUDA compiler, where there is one: kernels go into the library as data, so nothing else of
# CUDA is needed, not even to link.
CUDA       ?= auto
CUDA_ARCHS ?= 90
NVCC       ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) \
                $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
HAVE_NVCC  := $(if $(filter 0,$(CUDA)),,$(if $(NVCC),1))
ifeq ($(CUDA)$(HAVE_NVCC),1)
$(error CUDA=1, but no nvcc was found: put it on PATH, or set NVCC or CUDA_HOME)
endif

# ---- version: one source, the public header ----
version  = $(shell awk '$$2 == "SYMM_$(1)" { print $$3 }' include/symm.h)
MAJOR   := $(call version,MAJOR)
VERSION := $(MAJOR).$(call version,MINOR).$(call version,PATCH)

# A second make for what follows the set-up; takes all cores unless the user said how many jobs.
CORES  := $(shell nproc 2>/dev/null || echo 2)
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(CORES))
