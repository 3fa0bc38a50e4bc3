# Test programs, found by name:
#   unit/unit_*.c     pure parts
#   fault/fault_*.c   bad input, dying ranks
#   thr/thr_*.c       ranks as threads
#   mp/mp_*.c         ranks under mpirun
#   gpu/gpu_*.c       ranks on GPUs (make check-gpu); gpu/mpg_*.c: the same under mpirun
#   bench/bench_*.c   figures, never a verdict
#   check/check_*.sh  the tree and the tools
#   kit/              what tests share
#   fake/             stand-ins: a CUDA driver, kernels on fibers, other libraries
# They link the library's objects built with -DSYMM_TESTING (failpoints in), not the library: so
# they see its inside.

#> NP='2 4'            rank counts of the mp_ tests (default 1 2 3 4 5 8)
#> T_SLOW=3            multiplies every time limit of the tests
#> REQUIRE=cuda,...    what must not be skipped
#> FUZZ_SECONDS=60     how long each fuzzer runs
#> BENCH=quick|all      of bench-memory: short traces, or every maximum of the random allocations
#> GPU_DEVICES=1        of check-gpu: how many GPUs
#> GPU_CASES=48         of check-gpu: cases of a matrix
#> T_SECONDS_TORTURE=20 of check-gpu: how long the torture takes
NP           ?= 1 2 3 4 5 8
FUZZ_SECONDS ?= 60
TEST         := $(OUT)/test$(S)

names         = $(sort $(notdir $(basename $(wildcard $(1:%=tests/*/%_*.c)))))
HAVE_CXX     := $(shell command -v $(CXX) 2>/dev/null)
DEVICE_UNITS := unit_device_api unit_device_hosts
ON_FIBERS    := unit_kernels unit_hosts_kernels unit_p2p_kernels unit_p2p_leave \
                unit_onesided_kernels unit_multicast_kernels unit_join_kernels \
                unit_lines_kernels $(DEVICE_UNITS)
UNIT_TESTS   := $(filter-out $(if $(HAVE_CXX),,$(ON_FIBERS)),$(call names,unit))
FAULT_TESTS  := $(call names,fault)
THR_TESTS    := $(call names,thr)
MP_TESTS     := $(if $(HAVE_MPI),$(filter-out $(if $(HAVE_PMPI),,mp_pmpi%),$(call names,mp)))
GPU_TESTS    := $(call names,gpu)
MPG_TESTS    := $(if $(HAVE_MPI),$(call names,mpg))
BENCHES      := $(filter-out $(if $(HAVE_PMPI),,bench_pmpi),$(call names,bench))
CHECKS       := $(wildcard tests/check/check_*.sh)
EXAMPLES     := $(patsubst examples/%.c,%,$(wildcard examples/*.c))
CU_EXAMPLES  := $(if $(HAVE_NVCC),$(patsubst examples/%.cu,%,$(wildcard examples/*.cu)))

# Programs that want the MPI wrapper say so by their includes.
uses_mpi      = $(if $(2),$(notdir $(basename \
                  $(shell grep -lE '^ *.include *[<"](symm_)?mpi\.h' $(2:%=$(1)/%.c)))))
MPI_BENCHES  := $(call uses_mpi,tests/bench,$(BENCHES))
MPI_EXAMPLES := $(call uses_mpi,examples,$(EXAMPLES))
ifeq ($(HAVE_MPI),)
BENCHES  := $(filter-out $(MPI_BENCHES),$(BENCHES))
EXAMPLES := $(filter-out $(MPI_EXAMPLES),$(EXAMPLES))
endif

C_TESTS      := $(UNIT_TESTS) $(FAULT_TESTS) $(THR_TESTS) $(GPU_TESTS) \
                $(filter-out $(MPI_BENCHES),$(BENCHES))
M_TESTS      := $(MP_TESTS) $(MPG_TESTS) $(filter $(MPI_BENCHES),$(BENCHES))
# What tests share; an archive, so that only those that use a part take it in.
T_PARTS      := $(patsubst %,$(TOBJ)/tests/%.o,$(call names,fake) host_kernels)
# The GPU kernels on fibers, which unit_*kernels and unit_p2p_leave run.
EMU_OBJ      := $(patsubst %,$(TOBJ)/tests/%.o,emu_run emu_stores emu_kernels)
# Kernels of the device API, as programs write them.
EMU_DEV_OBJ  := $(patsubst %,$(TOBJ)/tests/%.o,emu_device emu_device_debug)
SANITIZED    := $(if $(SANITIZERS),$(TOBJ)/tests/sanitized.o)
T_OBJ        := $(TOBJ)/tests/t.o $(SANITIZED) $(if $(T_PARTS),$(TOBJ)/tests/parts.a)
MPI_LEAKS    := $(if $(filter address,$(SANITIZERS)),$(TOBJ)/tests/mpi_leaks.o)
TEST_PROGRAM_OBJ := $(patsubst %,$(TOBJ)/tests/%.o,t $(C_TESTS) $(M_TESTS)) \
                    $(SANITIZED) $(MPI_LEAKS) $(T_PARTS) $(EMU_OBJ) $(EMU_DEV_OBJ)

$(TOBJ)/tests/parts.a: $(T_PARTS)
	@$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# An object of a test lies in one folder, whichever folder of tests/ its source is in: names are
# unique. Arguments: source, name, whether it is compiled with MPI.
define test_object
$(TOBJ)/tests/$(2).o: $(1) $(TOBJ)/flags
	@$$(call say,$(if $(3),MPI)CC,$$@)
	$(Q)$(if $(3),$(WITH_MPI),$(CC)) $$(ALL_CPPFLAGS) $(TEST_FLAGS) $$(ALL_CFLAGS) $$(DEPS) \
	  -c $$< -o $$@
endef
$(foreach f,$(wildcard tests/*/*.c),$(foreach n,$(basename $(notdir $(f))),\
  $(eval $(call test_object,$(f),$(n),$(filter $(n),$(M_TESTS))))))

# symm-info's map of a heap, which unit_heap_dump draws.
MAP_NAMES := info_map info_map_svg
$(foreach n,$(MAP_NAMES),$(eval $(call test_object,tools/$(n).c,$(n),)))
MAP_OBJ   := $(MAP_NAMES:%=$(TOBJ)/tests/%.o)
$(TEST)/unit_heap_dump: $(MAP_OBJ)
# symm-tune's choice, which unit_tune checks.
CHOOSE_NAMES := tune_choose perf_median
$(foreach n,$(CHOOSE_NAMES),$(eval $(call test_object,tools/$(n).c,$(n),)))
CHOOSE_OBJ := $(CHOOSE_NAMES:%=$(TOBJ)/tests/%.o)
$(TEST)/unit_tune: $(CHOOSE_OBJ)
TEST_PROGRAM_OBJ += $(MAP_OBJ) $(CHOOSE_OBJ)

# Of programs that measure nothing: -O1 compiles in 60 % of the time.
ifeq ($(call on,DEBUG),)
$(foreach c,unit fault thr mp,$(TOBJ)/tests/$(c)_%.o): private OPT := -O1
endif

# An archive, so that a program takes in what it tests and no more. The GPU kernels are 22 MB and
# the same in every program: they lie in a library beside the programs.
TEST_LIB    := $(TOBJ)/libsymm.a
TEST_IMAGES := $(TEST)/libsymm-images.so
T_IMAGES    := $(filter $(TOBJ)/%,$(IMAGES_OBJ))
BESIDE      := -Wl,-rpath,'$$ORIGIN'
$(T_IMAGES): private ALL_CFLAGS += -fvisibility=default
$(TEST_LIB): $(filter-out $(T_IMAGES),$(TEST_OBJ))
	@$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(TEST_IMAGES): $(T_IMAGES) | $(TEST)
	@$(call say,LD,$@)
	$(Q)$(CC) -shared $^ $(ALL_LDFLAGS) -Wl,-soname,$(@F) -o $@

# Objects first: they may be more than the rule's own, and they take from the archives.
$(C_TESTS:%=$(TEST)/%): $(TEST)/%: $(TOBJ)/tests/%.o $(T_OBJ) $(TEST_LIB) $(TEST_IMAGES)
	@$(call say,LD,$@)
	$(Q)$(CC) $(filter %.o,$^) $(filter-out %.o,$^) $(ALL_LDFLAGS) $(BESIDE) -lrt -lm -o $@

$(M_TESTS:%=$(TEST)/%): $(TEST)/%: \
    $(TOBJ)/tests/%.o $(T_OBJ) $(TEST_MPI_OBJ) $(MPI_LEAKS) $(TEST_LIB) $(TEST_IMAGES)
	@$(call say,LD,$@)
	$(Q)$(WITH_MPI) $(filter %.o,$^) $(filter-out %.o,$^) $(ALL_LDFLAGS) $(BESIDE) \
	  $(if $(MPI_LEAKS),-rdynamic) -lrt -lm -o $@

# Programs that look inside the drop-in.
NCCL_TESTS := $(filter unit_nccl% thr_nccl% fault_nccl% bench_nccl%,$(C_TESTS))
$(NCCL_TESTS:%=$(TEST)/%): $(TEST_NCCL_OBJ)

$(TEST)/mpg_nccl: $(TEST_NCCL_OBJ)

# The real NCCLs that these find: a whole one, and one that lacks calls.
REAL_NCCLS := $(TEST)/libnccl-real.so $(TEST)/libnccl-real-old.so
$(NCCL_TESTS:%=$(TEST)/%): | $(REAL_NCCLS)
$(TEST)/bench_nccl: | $(NCCL_LIB)
$(TEST)/libnccl-real-old.so: OLD := -DOLD
$(REAL_NCCLS): tests/fake/nccl_whole.c nccl-tests-plugin/symbols.h nccl-tests-plugin/symbols.def \
    nccl-tests-plugin/abi.h $(TOBJ)/flags | $(TEST)
	@$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 -O1 -g $(WARN) -fPIC -shared $(SAN_FLAGS) $(OLD) -Iinclude $< -lrt -o $@

# A libnvidia-ml.so.1 for the program that tests how one is opened.
NVML_STUB := $(TEST)/libnvidia-ml-stub.so
$(TEST)/unit_fabric_info: | $(NVML_STUB)
$(NVML_STUB): tests/fake/nvml_stub.c src/transport/cuda/cuda_fabric.h $(TOBJ)/flags | $(TEST)
	@$(call say,LD,$@)
	$(Q)$(CC) -std=gnu11 -O1 -g $(WARN) -fPIC -shared $(SAN_FLAGS) -Isrc $< -o $@

# A program of others, over the drop-in as it is installed.
$(TEST)/mp_nccl: $(NCCL_LIB)
$(TEST)/mp_nccl: BESIDE += -Wl,-rpath,'$$ORIGIN/../lib$(S)/nccl'

# The same, over what is preloaded into MPI programs: before MPI among the libraries.
OVER_PMPI := $(addprefix $(TEST)/,mp_pmpi mp_pmpi_life mp_pmpi_threads bench_pmpi)
$(OVER_PMPI): $(PMPI_LIB)
$(OVER_PMPI): BESIDE += -Wl,-rpath,'$$ORIGIN/../lib$(S)'

$(addprefix $(TEST)/,$(filter-out $(DEVICE_UNITS),$(ON_FIBERS))): $(EMU_OBJ)
$(DEVICE_UNITS:%=$(TEST)/%): $(filter-out %/emu_kernels.o,$(EMU_OBJ)) $(EMU_DEV_OBJ)
$(TOBJ)/tests/emu_kernels.o $(EMU_DEV_OBJ): $(TOBJ)/tests/%.o: tests/fake/%.cc $(TOBJ)/flags
	@$(call say,CXX,$@)
	$(Q)$(CXX) -std=c++17 -O1 -g $(WARN) -Wno-unknown-pragmas \
	  $(if $(findstring clang,$(CXX)),-Wno-pass-failed) -ffp-contract=off -fno-exceptions -fno-rtti \
	  -Iinclude -Iexamples -Itests/kit -Itests/fake $(DEPS) -c $< -o $@

# Examples are what a user would write: the public headers and the shared library, nothing else.
EXAMPLE_PROGRAMS := $(EXAMPLES:%=$(OUT)/examples$(S)/%)
$(EXAMPLE_PROGRAMS): $(OUT)/examples$(S)/%: examples/%.c $(wildcard include/*.h) $(LIBRARIES)
	@$(call say,EXAMPLE,$@)
	$(Q)$(if $(filter $*,$(MPI_EXAMPLES)),$(WITH_MPI),$(CC)) \
	  -Iinclude $(OPT) $(CFLAGS) $(WARN) -std=gnu11 $(SAN_FLAGS) $< \
	  -L$(LIB) $(if $(filter $*,$(MPI_EXAMPLES)),-lsymm-mpi) -lsymm $(RPATH) $(ALL_LDFLAGS) -lm -o $@

# Those with kernels of their own: nvcc links the CUDA runtime in, so that they too need no more
# than the driver.
CU_EXAMPLE_PROGRAMS := $(CU_EXAMPLES:%=$(OUT)/examples$(S)/%)
$(CU_EXAMPLE_PROGRAMS): $(wildcard include/*.h include/*.cuh examples/*.cuh) \
                         $(LIBRARIES) $(FATBINS)/flags
$(CU_EXAMPLE_PROGRAMS): $(OUT)/examples$(S)/%: examples/%.cu
	@$(call say,NVCC,$@)
	$(Q)$(NVCC) -std=c++17 -O2 $(gencode) -Iinclude \
	  -Xcompiler $(subst $(space),$(comma),$(strip $(WARN))) $< -L$(LIB) -lsymm \
	  -Xlinker -rpath -Xlinker '$$ORIGIN/../lib$(S)' -lpthread -o $@

TEST_DIRS := $(TOBJ)/tests $(TEST) $(OUT)/examples$(S)
$(TEST_DIRS):
	$(Q)mkdir -p $@
$(TEST_PROGRAM_OBJ): | $(TOBJ)/tests
$(patsubst %,$(TEST)/%,$(C_TESTS) $(M_TESTS)): | $(TEST)
$(EXAMPLE_PROGRAMS) $(CU_EXAMPLE_PROGRAMS): | $(OUT)/examples$(S)

-include $(TEST_PROGRAM_OBJ:.o=.d)

# ---- building test programs of one variant ----
.PHONY: tests-plain tests-more tests-asan tests-tsan tests-gpu bench-programs examples
BENCH_PROGRAMS := $(foreach b,$(BENCHES),\
  $(if $(filter $(b),$(MPI_BENCHES)),np=2:$(TEST)/$(b) np=4:$(TEST)/$(b),$(TEST)/$(b)))
bench-programs: $(BENCHES:%=$(TEST)/%)
examples: $(EXAMPLE_PROGRAMS) $(CU_EXAMPLE_PROGRAMS) ## examples/, into build/examples
tests-plain: $(patsubst %,$(TEST)/%,$(UNIT_TESTS) $(FAULT_TESTS) $(THR_TESTS) $(MP_TESTS)) \
             $(if $(HAVE_MPI),$(TEST)/mpg_death) examples
# What check-rest and its checks alone run.
tests-more:  bench-programs tests-gpu
USER_DEVICE  := $(FATBINS)/user_device.fatbin $(FATBINS)/user_device_debug.fatbin
tests-gpu:   $(patsubst %,$(TEST)/%,$(GPU_TESTS) $(MPG_TESTS)) \
             $(if $(HAVE_NVCC),$(FATBINS)/user.fatbin $(USER_DEVICE))
# Kernels as a user would write them, for gpu_pdl and gpu_litmus.
$(FATBINS)/user.fatbin: tests/gpu/user.cu src/device/cuda/ptx.cuh include/symm_device_ptx.cuh \
    $(FATBINS)/flags
	@$(call say,NVCC,$@)
	$(Q)$(call compile_gpu,$<)
# The same, of the device API, for gpu_device_api: plain, and as debug builds have them.
$(USER_DEVICE): $(FATBINS)/%.fatbin: tests/gpu/%.cu tests/gpu/user_device.cu \
    tests/kit/device_kernels.inl tests/kit/emu_dev.h $(wildcard include/*.cuh examples/*.cuh) \
    include/symm_device.h $(FATBINS)/flags
	@$(call say,NVCC,$@)
	$(Q)$(call compile_gpu,-Iinclude -Iexamples -Itests/kit -Itests/fake $<)
# Not under sanitizers: fibers, whose stacks sanitizers do not know. Not under ThreadSanitizer:
# arithmetic of one thread.
ASAN_UNITS   := $(filter-out $(ON_FIBERS),$(UNIT_TESTS))
ONE_THREAD   := unit_survive unit_reduce unit_plan unit_place unit_place_small unit_place_wide \
                unit_gplan unit_cuda_share unit_caches unit_window_table
TSAN_UNITS   := $(filter-out $(ONE_THREAD),$(ASAN_UNITS))
# Not thr_72: the kernels of thr_matrix, whose races do not depend on the number of ranks.
TSAN_THR     := $(filter-out thr_72,$(THR_TESTS))
tests-asan:  $(patsubst %,$(TEST)/%,$(ASAN_UNITS) $(FAULT_TESTS) $(MP_TESTS))
tests-tsan:  $(patsubst %,$(TEST)/%,$(TSAN_UNITS) $(TSAN_THR))

# ---- running ----
ASAN_TEST := $(OUT)/test-asan-ubsan
TSAN_TEST := $(OUT)/test-tsan
at = $(foreach n,$(1),$(2:%=np=$(n):%))

ASAN_LIST  = $(patsubst %,$(ASAN_TEST)/%,$(ASAN_UNITS) $(FAULT_TESTS)) \
             $(call at,2 4,$(MP_TESTS:%=$(ASAN_TEST)/%))
TSAN_LIST  = $(patsubst %,$(TSAN_TEST)/%,$(TSAN_UNITS) $(TSAN_THR))

# The first race or bad access ends the test.
SAN_ENV := TSAN_OPTIONS='halt_on_error=1 second_deadlock_stack=1' \
           ASAN_OPTIONS='detect_stack_use_after_return=1' \
           UBSAN_OPTIONS='print_stacktrace=1'
# ThreadSanitizer of older compilers cannot place its shadow under more than 28 random bits of
# address: there the tests run without address randomisation.
RANDOM_BITS := $(shell cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)
FIXED  = $(if $(filter-out 8 16 18 24 28,$(RANDOM_BITS)),\
           $(shell setarch -R true 2>/dev/null && echo setarch -R))
RUN_SH = $(SAN_ENV) MPIRUN='$(MPIRUN)' CC='$(CC)' BUILD='$(OUT)' $(FIXED) tests/run.sh

# Ranks that die, under an mpirun that goes on without them: what mpg_death does on the host
# backend, and deaths of one rank or of all ranks of one of several domains.
DEATH_SPEC = $(if $(HAVE_MPI),'recover=4:$(TEST)/mpg_death host survivors_pass' \
               $(foreach t,a_death_ends_the_calls_of_all a_domain_of_one_dies \
                 a_domain_of_two_dies,'recover=4:$(TEST)/mp_across_death $(t)'))

.PHONY: check check-rest check-full check-build check-rest-build check-run check-rest-run
.PHONY: asan tsan asan-run tsan-run fuzz fuzz-run
check: setup ## set-up, build, tests of every class; closes with `N passed, N failed, N skipped`
	+@$(SUBMAKE) WERROR=1 check-build
	+@$(SUBMAKE) check-run

check-rest: setup ## what check leaves out: sanitizers, mutants, installing, more ranks
	+@$(SUBMAKE) WERROR=1 check-build
	+@$(SUBMAKE) WERROR=1 check-rest-build
	+@$(SUBMAKE) check-rest-run

# Time limits are tripled.
check-full: ## both, unsampled: whole matrices, all mutants, all rank counts, ARM under qemu
	@T_FULL=1 T_SLOW=$${T_SLOW:-3} $(MAKE) --no-print-directory check
	@T_FULL=1 T_SLOW=$${T_SLOW:-3} $(MAKE) --no-print-directory check-rest

check-build:
	@echo 'building: library, tools, tests'
	+@$(SUBMAKE) all tests-plain
# One after the other: each uses all the cores that -j gives.
check-rest-build:
	+@$(SUBMAKE) tests-more
	@echo 'building: tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	+@$(SUBMAKE) ASAN=1 UBSAN=1 tests-asan
	@echo 'building: tests under ThreadSanitizer'
	+@$(SUBMAKE) TSAN=1 tests-tsan

# Checks that build again, or take as long as many tests.
LONG_CHECKS := $(addprefix tests/check/check_,mutants.sh build.sh arm.sh load.sh setup.sh sass.sh \
                 hosts.sh fabric.sh campaign.sh perf_gpu.sh)
# Of the kernels on fibers, what takes half of the time is left to check-rest; check-full, which
# runs both, runs all of it there.
LONG_UNITS  := unit_kernels
LONG_BRIEF  := '$(TEST)/unit_kernels every_kernel_in_any_order counts_per_rank_in_any_order \
                 an_abort_at_any_step_ends_all_kernels an_abort_ends_those_with_counts_per_rank \
                 counts_that_differ_are_told ranks_that_differ_all_leave \
                 an_aborted_ranks_windows_are_left_alone \
                 a_barrier_orders_what_was_stored_before_it'
CHECK_NP    := 2 4
# Programs at a time: much of a test is waiting, for deadlines and for peers. fault_ programs wait
# most, so they begin.
AT_ONCE     := 6
check-run:
	@$(RUN_SH) -j $(AT_ONCE) $(FAULT_TESTS:%=$(TEST)/%) $(filter-out $(LONG_CHECKS),$(CHECKS)) \
	  $(if $(HAVE_CXX),$(if $(T_FULL),,$(LONG_BRIEF))) \
	  $(patsubst %,$(TEST)/%,$(filter-out $(LONG_UNITS),$(UNIT_TESTS)) $(THR_TESTS)) \
	  $(call at,$(CHECK_NP),$(MP_TESTS:%=$(TEST)/%)) $(DEATH_SPEC)

# What takes longest under a sanitizer is left to `make asan`, `make tsan` and check-full.
LONG_ASAN := $(if $(T_FULL),,$(ASAN_TEST)/fault_limits $(ASAN_TEST)/fault_boot)
LONG_TSAN := $(if $(T_FULL),,$(TSAN_TEST)/unit_cuda_vmm)
MUTANTS   := tests/check/check_mutants.sh
# Of mutants some; check-full runs all of them, in parts beside each other.
# Two programs at a time keep their limits on a slow machine; check-full has three times as long.
REST_AT_ONCE := $(if $(T_FULL),4,2)
PARTS     := $(if $(T_FULL),$(foreach k,1 2 3 4 5 6 7 8,'$(MUTANTS) $(k)/8'),$(MUTANTS))
# check-full: all collectives and messages with more ranks as well. What else these programs test
# does not change beyond the ranks of NP. Full matrices are for CHECK_NP: each case costs every rank
# time, and the cores are few.
MORE_NP   := $(if $(T_FULL),$(filter-out $(CHECK_NP) $(NP),6 7 12 16))
COLL_TESTS = $(filter mp_matrix mp_device_api mp_onesided mp_p2p mp_pmpi,$(MP_TESTS))
# mp_across: 16 ranks in domains show what 12 would.
AT_MORE    = $(call at,$(MORE_NP),$(COLL_TESTS:%=$(TEST)/%)) \
             $(if $(HAVE_MPI),$(foreach n,$(filter-out 12,$(MORE_NP)),\
               'np=$(n):$(TEST)/mp_across matrix'))
check-rest-run:
	@FULL_NP='$(CHECK_NP)' $(RUN_SH) -j $(REST_AT_ONCE) $(PARTS) \
	  $(filter-out $(MUTANTS),$(filter $(LONG_CHECKS),$(CHECKS))) \
	  $(call at,$(filter-out $(CHECK_NP),$(NP)),$(MP_TESTS:%=$(TEST)/%)) $(AT_MORE) \
	  $(patsubst %,$(TEST)/%,$(filter $(LONG_UNITS),$(UNIT_TESTS))) \
	  $(filter-out $(LONG_TSAN),$(TSAN_LIST)) $(filter-out $(LONG_ASAN),$(ASAN_LIST))

asan: setup ## unit, fault and mp tests under AddressSanitizer and UndefinedBehaviorSanitizer
	+@$(SUBMAKE) ASAN=1 UBSAN=1 tests-asan
	+@$(SUBMAKE) asan-run
asan-run:
	@$(RUN_SH) $(ASAN_LIST)

tsan: setup ## unit and thread-rank tests under ThreadSanitizer
	+@$(SUBMAKE) TSAN=1 tests-tsan
	+@$(SUBMAKE) tsan-run
tsan-run:
	@$(RUN_SH) $(TSAN_LIST)

# ---- GPUs: a machine without one, or a build without kernels, is a failure here ----
CHECK_GPU = MPIRUN='$(MPIRUN)' BUILD='$(OUT)' scripts/check_gpu.sh
.PHONY: check-gpu check-gpu-sanitizer check-gpu-fake
check-gpu: setup ## tests on this machine's GPUs; closes with `N passed, N failed, N skipped`
	+@$(SUBMAKE) all tests-gpu examples
	@$(CHECK_GPU) run $(GPU_TESTS) $(MPG_TESTS) tests/check/check_gpu_examples.sh

check-gpu-sanitizer: setup ## a few of them under compute-sanitizer: memcheck and initcheck
	+@$(SUBMAKE) tests-gpu
	@$(CHECK_GPU) sanitizer

check-gpu-fake: setup ## the logic of these tests without a GPU, on a fake driver
	+@$(SUBMAKE) tests-gpu
	@$(CHECK_GPU) fake $(GPU_TESTS) $(MPG_TESTS)

# ---- fuzzing: libFuzzer comes with clang ----
FUZZERS     := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
FUZZ_BIN    := $(OUT)/fuzz
FUZZ_OBJ    := $(FUZZERS:%=$(TOBJ)/tests/%.o)
fuzz: ## run each fuzzer of tests/fuzz for FUZZ_SECONDS (needs clang)
	@command -v clang >/dev/null || { echo 'symm: make fuzz needs clang (package clang)'; exit 2; }
	+@$(SUBMAKE) CC=clang FUZZ=1 ASAN=1 UBSAN=1 fuzz-run

$(FUZZERS:%=$(FUZZ_BIN)/%): $(FUZZ_BIN)/%: $(TOBJ)/tests/%.o $(TEST_LIB) $(TEST_IMAGES)
	@$(call say,LD,$@)
	$(Q)$(CC) $^ $(subst fuzzer-no-link,fuzzer,$(ALL_LDFLAGS)) \
	  -Wl,-rpath,$(abspath $(TEST)) -lrt -lm -o $@
$(FUZZ_OBJ): | $(TOBJ)/tests
$(FUZZERS:%=$(FUZZ_BIN)/%): | $(FUZZ_BIN)
$(FUZZ_BIN):
	$(Q)mkdir -p $@
-include $(FUZZ_OBJ:.o=.d)

# Calls on a heap depend on each other: left to itself libFuzzer lengthens inputs so slowly that a
# minute ends at two of them. 641 bytes are the first byte and 160 calls.
FUZZ_HEAP_FLAGS := -len_control=0 -max_len=641

# New inputs go to build/; tests/fuzz/corpus/<name>, where it exists, is the seed.
fuzz-run: $(FUZZERS:%=$(FUZZ_BIN)/%)
	@for f in $(FUZZERS); do \
	  echo "fuzzing: $$f for $(FUZZ_SECONDS) s"; \
	  new=$(FUZZ_BIN)/corpus-$$f; mkdir -p $$new; \
	  seed=tests/fuzz/corpus/$$f; [ -d $$seed ] || seed=; \
	  flags=; [ $$f = fuzz_heap ] && flags='$(FUZZ_HEAP_FLAGS)'; \
	  $(FUZZ_BIN)/$$f $$flags -max_total_time=$(FUZZ_SECONDS) \
	    -artifact_prefix=$(FUZZ_BIN)/$$f- $$new $$seed || exit 1; done
