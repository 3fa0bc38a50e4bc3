# Objects, libraries, tools, install. Sources are found by wildcard: a new file needs no line here.

OBJ  := $(OUT)/obj$(S)
TOBJ := $(OUT)/obj-test$(S)
LIB  := $(OUT)/lib$(S)
BIN  := $(OUT)/bin$(S)

# ---- sources ----
MPI_ONLY   := $(wildcard src/transport/mpi/*.c)
LIB_SRC    := $(filter-out src/device/%,$(wildcard src/*/*.c src/*/*/*.c))
HOST_SRC   := $(filter-out $(MPI_ONLY),$(LIB_SRC))
MPI_SRC    := $(MPI_ONLY)
REDUCE_SRC := $(wildcard src/device/host/reduce_host.c)
DEVICE_SRC := $(filter-out $(REDUCE_SRC),$(wildcard src/device/*/*.c))
# symm-perf is symm_perf.c and perf_*.c; perf_mpi.c is the part that needs mpi.h.
PERF_SRC   := $(filter-out tools/perf_mpi.c,$(wildcard tools/symm_perf.c tools/perf_*.c))
# symm-tune: its own files, and what symm-perf measures with.
TUNE_SRC   := $(wildcard tools/symm_tune.c tools/tune_*.c)
INFO_SRC   := $(wildcard tools/symm_info.c tools/info_*.c)

# ---- one reduction, once per instruction set; the best one is picked at run time ----
# -ffp-contract=off: a fused multiply-add would round differently from one instruction set to the
# next.
ISAS       := base $(if $(filter x86_64,$(MACHINE)),avx2 avx512)
ISA_base   :=
ISA_avx2   := -mavx2 -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c -mprefer-vector-width=512

# ---- objects: $(1) is the object directory ----
lib_objects = $(HOST_SRC:%.c=$(1)/%.o) $(DEVICE_SRC:%.c=$(1)/%.o) \
              $(foreach isa,$(ISAS),$(REDUCE_SRC:%.c=$(1)/%.$(isa).o))
LIB_OBJ  := $(call lib_objects,$(OBJ))
TEST_OBJ := $(call lib_objects,$(TOBJ))
MPI_OBJ  := $(MPI_SRC:%.c=$(OBJ)/%.o)
TEST_MPI_OBJ := $(MPI_SRC:%.c=$(TOBJ)/%.o)
PERF_OBJ := $(PERF_SRC:%.c=$(OBJ)/%.o) $(if $(HAVE_MPI),$(OBJ)/tools/perf_mpi.o)
TUNE_OBJ := $(TUNE_SRC:%.c=$(OBJ)/%.o)
INFO_OBJ := $(INFO_SRC:%.c=$(OBJ)/%.o)
RUN_OBJ  := $(OBJ)/tools/symm_run.o
# The drop-in for NCCL: a library of its own with a copy of libsymm in it.
NCCL_SRC := $(wildcard nccl-tests-plugin/*.c)
NCCL_OBJ := $(NCCL_SRC:%.c=$(OBJ)/%.o)
TEST_NCCL_OBJ := $(NCCL_SRC:%.c=$(TOBJ)/%.o)
# What is preloaded into MPI programs. It has a copy of libsymm and of libsymm-mpi in it, whose MPI
# symbols are weak as its own are. Written for Open MPI, with whole numbers of Fortran that are C's
# int.
HAVE_PMPI := $(if $(HAVE_MPI),$(shell printf '\043include <mpi.h>\nOPEN_MPI MPI_Fint\n' | \
               $(WITH_MPI) -x c -E -P - 2>/dev/null | grep -qx '1 int' && echo 1))
PMPI_SRC  := $(if $(HAVE_PMPI),$(wildcard mpi-plugin/*.c))
PMPI_MPI  := boot_mpi check_mpi init_mpi net_mpi
PMPI_OBJ  := $(PMPI_SRC:%.c=$(OBJ)/%.o) $(if $(HAVE_PMPI),$(PMPI_MPI:%=$(OBJ)/mpi-plugin/%.o))
OBJECTS  := $(PMPI_OBJ) $(NCCL_OBJ) $(TEST_NCCL_OBJ) $(LIB_OBJ) $(TEST_OBJ) $(MPI_OBJ) \
            $(TEST_MPI_OBJ) $(PERF_OBJ) $(TUNE_OBJ) $(INFO_OBJ) $(RUN_OBJ)

# What goes wrong otherwise: objects of two sets of flags in one library after `make CFLAGS=...`.
# -Werror changes no object: `make` and `make check` share them. What a target adds for itself is
# `private`: otherwise these files would inherit it from the target that asks for them first, and
# the next goal would build everything again.
FLAGS_USED = $(CC) $(ALL_CPPFLAGS) $(filter-out -Werror,$(ALL_CFLAGS)) $(OPT_DEVICE) \
             mpi:$(HAVE_MPI) nvcc:$(HAVE_NVCC)$(CUDA_OFF)
# Writes $(1) into the target, unless it says that already.
record     = mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(1))' > $@.new; \
             cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(OBJ)/flags $(TOBJ)/flags: FORCE
	@$(call record,$(FLAGS_USED))

# Arguments: object directory, extra flags of all objects in it.
define object_rules
$(1)/src/device/%.o: src/device/%.c $(1)/flags
	@$$(call say,CC,$$@)
	$(Q)$(CC) $$(ALL_CPPFLAGS) $(2) $$(ALL_CFLAGS) $(OPT_DEVICE) $$(DEPS) -c $$< -o $$@

$(MPI_ONLY:%.c=$(1)/%.o) $(1)/tools/perf_mpi.o: $(1)/%.o: %.c $(1)/flags
	@$$(call say,MPICC,$$@)
	$(Q)$(WITH_MPI) $$(ALL_CPPFLAGS) $(2) $$(ALL_CFLAGS) $$(DEPS) -c $$< -o $$@

$(1)/mpi-plugin/%.o: mpi-plugin/%.c $(1)/flags
	@$$(call say,MPICC,$$@)
	$(Q)$(WITH_MPI) $$(ALL_CPPFLAGS) $(2) $$(ALL_CFLAGS) $$(DEPS) -c $$< -o $$@

$(PMPI_MPI:%=$(1)/mpi-plugin/%.o): $(1)/mpi-plugin/%.o: src/transport/mpi/%.c $(1)/flags
	@$$(call say,MPICC,$$@)
	$(Q)$(WITH_MPI) -include mpi-plugin/names.h -include mpi-plugin/weak.h $$(ALL_CPPFLAGS) $(2) \
	  $$(ALL_CFLAGS) $$(DEPS) -c $$< -o $$@

$(1)/%.o: %.c $(1)/flags
	@$$(call say,CC,$$@)
	$(Q)$(CC) $$(ALL_CPPFLAGS) $(2) $$(ALL_CFLAGS) $$(DEPS) -c $$< -o $$@
endef
$(eval $(call object_rules,$(OBJ),$(if $(HAVE_MPI),-DSYMM_HAVE_MPI)))
# Test objects have the failpoints in. Each of 160 programs has what a debugger is told of them:
# without DEBUG=1 functions and lines only (-g1).
LINES_ONLY := $(if $(call on,DEBUG),,$(if $(filter -g%,$(CFLAGS)),-g1))
TEST_FLAGS := -DSYMM_TESTING -Itests/kit -Itests/fake -Itests/gpu
$(eval $(call object_rules,$(TOBJ),$(TEST_FLAGS)))
$(TOBJ)/%.o: private ALL_CFLAGS += $(LINES_ONLY)
# Every type times every reduction takes long to compile, and has no failpoints: once for both. Its
# lines are more than the rest of a test program: they stay for DEBUG=1 and the sanitizers.
STRIP := $(shell $(CC) -print-prog-name=strip)
define reduce_rule
$(OBJ)/src/device/host/reduce_host.$(1).o: src/device/host/reduce_host.c $(OBJ)/flags
	@$$(call say,CC,$$@)
	$(Q)$(CC) $$(ALL_CPPFLAGS) -DSYMM_ISA=$(1) $$(ALL_CFLAGS) $(LINES_ONLY) $(OPT_DEVICE) \
	  -ffp-contract=off $(ISA_$(1)) $$(DEPS) -c $$< -o $$@
$(TOBJ)/src/device/host/reduce_host.$(1).o: $(OBJ)/src/device/host/reduce_host.$(1).o
	$(Q)$(if $(call on,DEBUG)$(SANITIZERS),cp $$< $$@,$(STRIP) -S -o $$@ $$<)
endef
$(foreach isa,$(ISAS),$(eval $(call reduce_rule,$(isa))))

# ---- GPU kernels ----
# One fat binary per element type, and one for those that only move. All variants share them.
FATBINS  := $(OUT)/cuda
GPU_DEPS := $(wildcard src/device/cuda/*.cuh) \
            $(addprefix src/device/common/,types.inl records.h p2p_ring.h) \
            include/symm_device_ptx.cuh include/symm.h $(FATBINS)/flags
gencode   = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))
# -fmad=false: a fused multiply-add rounds differently from the host. A spill is a warning, and so
# an error of WERROR=1.
NVCC_CMD  = $(NVCC) -std=c++17 -O3 -fmad=false $(gencode) -fatbin \
            -Xptxas -v,-warn-spills,-warn-lmem-usage -Xcudafe --diag_suppress=177
GPU_TYPES := i8:0 u8:1 i32:2 u32:3 i64:4 u64:5 f16:6 f32:7 f64:8 bf16:9 e4m3:10 e5m2:11
type_name  = $(firstword $(subst :, ,$(1)))
FATBIN    := $(foreach t,$(GPU_TYPES),$(FATBINS)/$(call type_name,$(t)).fatbin) \
             $(FATBINS)/move.fatbin

$(FATBINS)/flags: FORCE
	@$(call record,$(NVCC_CMD))

compile_gpu = $(NVCC_CMD) $(1) -o $@ > $@.log 2>&1 || { cat $@.log >&2; exit 1; }; \
  if grep 'warning.*Registers are spilled' $@.log >&2; then \
  echo 'a GPU kernel spills registers' >&2; $(if $(call on,WERROR),rm -f $@; exit 1;) fi
define type_rule
$(FATBINS)/$(1).fatbin: src/device/cuda/reduce.cu $(GPU_DEPS)
	@$$(call say,NVCC,$$@)
	$(Q)$$(call compile_gpu,-DSYMM_T=$(2) -DSYMM_TNAME=$(1) $$<)
endef
$(foreach t,$(GPU_TYPES),$(eval \
  $(call type_rule,$(call type_name,$(t)),$(lastword $(subst :, ,$(t))))))
$(FATBINS)/move.fatbin: src/device/cuda/move.cu $(GPU_DEPS)
	@$(call say,NVCC,$@)
	$(Q)$(call compile_gpu,$<)
# Why there are none: the compiler was not asked for, or not found.
CUDA_OFF := $(if $(filter 0,$(CUDA)),-DSYMM_CUDA_OFF)
IMAGES_OBJ := $(OBJ)/src/device/common/kernel_images.o $(TOBJ)/src/device/common/kernel_images.o
$(IMAGES_OBJ): private ALL_CPPFLAGS += $(CUDA_OFF)
ifneq ($(HAVE_NVCC),)
$(IMAGES_OBJ): $(FATBIN)
$(IMAGES_OBJ): private ALL_CPPFLAGS += -DSYMM_HAVE_KERNELS -DSYMM_FATBINS='"$(FATBINS)"' \
                                       -DSYMM_ARCHS='"$(CUDA_ARCHS)"'
endif

# ---- libraries ----
SONAME     := libsymm.so.$(MAJOR)
MPI_SONAME := libsymm-mpi.so.$(MAJOR)
# In a folder of its own, so that nothing finds it by accident.
NCCL_LIB   := $(LIB)/nccl/libnccl.so.2
PMPI_LIB   := $(LIB)/libsymm-pmpi.so
LIBRARIES  := $(LIB)/libsymm.so $(LIB)/libsymm.a $(if $(HAVE_MPI),$(LIB)/libsymm-mpi.so) \
              $(NCCL_LIB) $(if $(HAVE_PMPI),$(PMPI_LIB))

# nodelete: the library is called at the end of a thread that has used it and at a fork, and the
# one for MPI when MPI frees a communicator or ends. Each may be after a dlclose.
SHARED_FLAGS := -Wl,-z,nodelete $(NO_UNDEFINED) -Wl,--version-script=src/libsymm.map

# libX.so -> libX.so.MAJOR -> libX.so.VERSION: what the linker, the loader and the packager look
# for.
$(LIB)/libsymm.so.$(VERSION): $(LIB_OBJ) src/libsymm.map
	@$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(SHARED_FLAGS) $(LIB_OBJ) $(ALL_LDFLAGS) -lrt -o $@
	$(Q)ln -sf $(@F) $(LIB)/$(SONAME)

$(LIB)/libsymm-mpi.so.$(VERSION): $(MPI_OBJ) $(LIB)/libsymm.so src/libsymm.map
	@$(call say,LD,$@)
	$(Q)$(WITH_MPI) -shared -Wl,-soname,$(MPI_SONAME) $(SHARED_FLAGS) -Wl,-rpath,'$$ORIGIN' \
	  $(MPI_OBJ) -L$(LIB) -lsymm $(ALL_LDFLAGS) -o $@
	$(Q)ln -sf $(@F) $(LIB)/$(MPI_SONAME)

$(LIB)/%.so: $(LIB)/%.so.$(VERSION)
	$(Q)ln -sf $(<F) $@

# -Bsymbolic: its own calls stay inside, whatever NCCL is loaded beside it.
$(NCCL_LIB): $(NCCL_OBJ) $(LIB)/libsymm.a nccl-tests-plugin/libnccl.map
	@$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,-Bsymbolic $(NO_UNDEFINED) \
	  -Wl,--version-script=nccl-tests-plugin/libnccl.map $(NCCL_OBJ) $(LIB)/libsymm.a \
	  $(ALL_LDFLAGS) -lrt -o $@

# By the compiler itself: mpicc would add MPI to what the library needs. lazy: where MPI is loaded
# later than this library, its functions are found when they are called.
$(PMPI_LIB): $(PMPI_OBJ) $(LIB)/libsymm.a mpi-plugin/libsymm-pmpi.map
	@$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,-z,lazy -Wl,-Bsymbolic $(NO_UNDEFINED) \
	  -Wl,--version-script=mpi-plugin/libsymm-pmpi.map $(PMPI_OBJ) $(LIB)/libsymm.a \
	  $(ALL_LDFLAGS) -lrt -ldl -o $@

# Removed first: ar would keep members whose source is gone.
$(LIB)/libsymm.a: $(LIB_OBJ)
	@$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)

# ---- tools ----
TOOLS := $(BIN)/symm-perf $(BIN)/symm-tune $(BIN)/symm-info $(BIN)/symm-run

# Found beside it, so that programs run from build/ and from any prefix without a library path.
RPATH := -Wl,-rpath,'$$ORIGIN/../lib$(S)'
# Both tools are static. symm-perf: it drives GPUs through the library's table of the driver's
# calls, which the shared library keeps to itself. With MPI it has symmCommInitMPI in it.
PERF_ALL := $(PERF_OBJ) $(if $(HAVE_MPI),$(MPI_OBJ))
$(BIN)/symm-perf: $(PERF_ALL) $(LIB)/libsymm.a
	@$(call say,LD,$@)
	$(Q)$(if $(HAVE_MPI),$(WITH_MPI),$(CC)) $(PERF_ALL) \
	  $(LIB)/libsymm.a $(ALL_LDFLAGS) -lrt -ldl -lm -o $@

TUNE_ALL := $(TUNE_OBJ) $(filter-out %/symm_perf.o,$(PERF_ALL))
$(BIN)/symm-tune: $(TUNE_ALL) $(LIB)/libsymm.a
	@$(call say,LD,$@)
	$(Q)$(if $(HAVE_MPI),$(WITH_MPI),$(CC)) $(TUNE_ALL) \
	  $(LIB)/libsymm.a $(ALL_LDFLAGS) -lrt -ldl -lm -o $@

# The same beside Open MPI and beside MPICH, whichever are there: `make bench` compares with the
# better one. Not installed, and nothing that `make check` needs.
MPIS      := $(foreach m,openmpi mpich,$(if $(shell printf '\043include <mpi.h>\n' | \
               mpicc.$(m) -x c -E - >/dev/null 2>&1 && command -v mpirun.$(m)),$(m)))
PERF_MPIS := $(MPIS:%=$(BIN)/bench/symm-perf-%)
$(PERF_MPIS): $(BIN)/bench/symm-perf-%: tools/perf_mpi.c $(BIN)/symm-perf
	@$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)OMPI_CC='$(CC)' MPICH_CC='$(CC)' mpicc.$* -DSYMM_HAVE_MPI $(ALL_CPPFLAGS) \
	  $(ALL_CFLAGS) $< $(filter-out %/perf_mpi.o,$(PERF_OBJ)) $(LIB)/libsymm.a $(ALL_LDFLAGS) \
	  -lrt -ldl -lm -o $@

# symm-info: it shows the library's tables, and its error texts as they are in the sources.
ERROR_SRC := $(sort $(wildcard src/*/*.[ch] src/*/*/*.[ch] src/*/*/*.inl))
$(OUT)/errors.inc: scripts/errors.awk $(ERROR_SRC)
	@mkdir -p $(@D)
	$(Q)awk -f scripts/errors.awk $(ERROR_SRC) > $@.new && mv $@.new $@
$(OBJ)/tools/info_errors.o: $(OUT)/errors.inc
$(OBJ)/tools/info_errors.o: private ALL_CPPFLAGS += -I$(OUT)
$(BIN)/symm-info: $(INFO_OBJ) $(LIB)/libsymm.a
	@$(call say,LD,$@)
	$(Q)$(CC) $(INFO_OBJ) $(LIB)/libsymm.a $(ALL_LDFLAGS) -lrt -lm -o $@

# symm-run: it needs nothing of the library; the drop-in lies beside it.
$(RUN_OBJ): private ALL_CPPFLAGS += -DSYMM_RUN_LIB='"../lib$(S)/nccl/libnccl.so.2"'
$(BIN)/symm-run: $(RUN_OBJ) | $(NCCL_LIB)
	@$(call say,LD,$@)
	$(Q)$(CC) $(RUN_OBJ) $(ALL_LDFLAGS) -o $@

# ---- directories: order-only, their time stamps mean nothing ----
DIRS := $(sort $(patsubst %/,%,$(dir $(OBJECTS))) $(LIB) $(LIB)/nccl $(BIN))
$(DIRS):
	$(Q)mkdir -p $@
$(OBJECTS): | $(DIRS)
$(LIBRARIES) $(LIB)/libsymm.so.$(VERSION) $(LIB)/libsymm-mpi.so.$(VERSION) $(TOOLS): | $(DIRS)

-include $(OBJECTS:.o=.d)

# ---- install ----
PC_DIRS := 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' ''
PC := $(OUT)/symm.pc $(if $(HAVE_MPI),$(OUT)/symm-mpi.pc)
$(OUT)/symm.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(PC_DIRS) 'Name: symm' 'Version: $(VERSION)' \
	  'Description: symmetric memory and collectives for ranks that share one memory domain' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lsymm' 'Libs.private: -pthread -lrt -ldl' > $@
$(OUT)/symm-mpi.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(PC_DIRS) 'Name: symm-mpi' 'Version: $(VERSION)' 'Requires: symm' \
	  'Description: symm for programs with MPI (symmCommInitMPI); compile with mpicc' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lsymm-mpi' > $@

to = $(DESTDIR)$(PREFIX)/$(1)
PUBLIC := $(filter-out include/symm_mpi.h,$(wildcard include/*.h)) \
          $(wildcard include/*.cuh)
# As they lie in the tree, so that what they say of each other's places is true there too.
DOC_DIR := share/doc/symm
SHARED  := symm $(if $(HAVE_MPI),symm-mpi)
install: all $(PC) ## headers, libraries, tools, pkg-config files, documents into DESTDIR/PREFIX
	$(Q)install -d $(call to,include) $(call to,lib/pkgconfig) $(call to,bin)
	$(Q)install -m 644 $(PUBLIC) $(if $(HAVE_MPI),include/symm_mpi.h) $(call to,include)
	$(Q)install -m 644 $(LIB)/libsymm.a $(call to,lib)
	$(Q)install -m 755 $(SHARED:%=$(LIB)/lib%.so.$(VERSION)) $(call to,lib)
	$(Q)cd $(call to,lib) && for l in $(SHARED); do \
	  ln -sf lib$$l.so.$(VERSION) lib$$l.so.$(MAJOR) && ln -sf lib$$l.so.$(MAJOR) lib$$l.so; done
	$(Q)install -m 644 $(PC) $(call to,lib/pkgconfig)
	$(Q)install -d $(call to,lib/nccl)
	$(Q)install -m 755 $(NCCL_LIB) $(call to,lib/nccl)
	$(if $(HAVE_PMPI),$(Q)install -m 755 $(PMPI_LIB) $(call to,lib))
	$(Q)install -m 755 $(TOOLS) $(call to,bin)
	$(Q)install -d $(call to,$(DOC_DIR)/docs) $(call to,$(DOC_DIR)/examples)
	$(Q)install -m 644 README.md CHANGELOG.md LICENSE $(call to,$(DOC_DIR))
	$(Q)install -m 644 $(wildcard docs/*.md docs/*.svg) $(call to,$(DOC_DIR)/docs)
	$(Q)install -m 644 $(wildcard examples/*.c examples/*.cu*) $(call to,$(DOC_DIR)/examples)
	$(Q)install -d $(call to,$(DOC_DIR)/mpi-plugin) $(call to,$(DOC_DIR)/nccl-tests-plugin)
	$(Q)install -m 644 mpi-plugin/README.md $(call to,$(DOC_DIR)/mpi-plugin)
	$(Q)install -m 644 nccl-tests-plugin/README.md $(call to,$(DOC_DIR)/nccl-tests-plugin)
	@$(call say,INSTALL,$(call to,))
