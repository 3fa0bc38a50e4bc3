# symm: `make help` lists the targets and the variables. Everything that is built lies in build/.
#
#   mk/flags.mk    compiler, flags, variants (DEBUG ASAN TSAN UBSAN COV), what this machine can
#                  build
#   mk/build.mk    objects, libraries, tools, install
#   mk/tests.mk    test programs and the targets that run them

.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules --no-builtin-variables
.DELETE_ON_ERROR:
.SUFFIXES:

include mk/flags.mk
include mk/build.mk
include mk/tests.mk

.PHONY: all run bench bench-memory campaign gpu-report docs setup install clean help FORCE

all: $(LIBRARIES) $(TOOLS) ## libraries and tools, whatever this machine can build (the default)
ifeq ($(HAVE_MPI),)
	@echo 'symm: no Open MPI here: built without libsymm-mpi, MPI in symm-perf and the MPI tests' \
	  '(make run and make check install it)'
endif

# run and check do all the set-up themselves. It is silent where nothing is missing. The real work
# happens in a second make, because what the first one found out about the machine may be out of
# date after the set-up.
setup:
	@CC='$(CC)' MPICC='$(MPICC)' MPIRUN='$(MPIRUN)' scripts/setup.sh

run: setup ## set-up, build, then five collectives beside Open MPI, on GPUs two beside NCCL
	+@$(SUBMAKE) all
	@BIN=$(BIN) MPIRUN='$(MPIRUN)' scripts/run.sh

bench: setup ## the performance figures of docs/performance.md: tables, JSON and SVG in build/bench
	+@$(SUBMAKE) all bench-programs $(PERF_MPIS)
	@BIN=$(BIN) MPIRUN='$(MPIRUN)' scripts/bench.sh $(OUT)/bench $(BENCH_PROGRAMS)

# Without a GPU no kernels are built for it; those that are there stay.
BENCH_CUDA   = $(if $(wildcard $(FATBIN))$(shell nvidia-smi -L 2>/dev/null),,CUDA=0)
BENCH_MEMORY := bench_memory bench_lane bench_memory_gpu gpu_lane_cost gpu_arena gpu_synced \
                $(filter bench_heap,$(BENCHES))
bench-memory: setup ## figures of memory objects beside malloc and CUDA: tables, JSON in build/bench
	+@$(SUBMAKE) $(BENCH_CUDA) $(BENCH_MEMORY:%=$(TEST)/%)
	@MPIRUN='$(MPIRUN)' scripts/bench_memory.sh $(OUT)/bench $(TEST)

campaign: setup ## all that is to be run on GPUs, in parts: again until nothing is left
	+@$(SUBMAKE) all tests-gpu examples
	@MPIRUN='$(MPIRUN)' BUILD='$(OUT)' scripts/campaign.sh run

gpu-report: ## what `make campaign` left, into docs/gpu-runs.txt and the tables of the documents
	@scripts/gpu_report.sh $(OUT)/campaign

docs: all ## what documents copy from the tree: drawing of the floors, program, variables
	@BIN=$(BIN) scripts/docs.sh

clean: ## remove build/
	@$(call say,CLEAN,$(OUT))
	$(Q)rm -rf $(OUT)

help: ## this text
	@echo 'Targets'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile mk/*.mk
	@echo 'Variables'
	@sed -n 's/^#> /  /p' mk/*.mk

FORCE:
