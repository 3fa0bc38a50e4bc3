/* unit_fail.c - failpoints: which hit of which rank fails, sleeps or dies. Test builds only. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "t.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/param.h"

#ifdef SYMM_TESTING

static void nothing_fails_unarmed(void) {
    for (int i = 0; i < symm_fp_count; i++) {
        T_EQ(symm_fail_hit(i), 0);
        T_EQ(symm_fail_hits(i), 1);
    }
}

static void every_point_can_be_armed_alone(void) {
    char spec[128];
    for (int armed = 0; armed < symm_fp_count; armed++) {
        snprintf(spec, sizeof spec, "%s:error", symm_fail_name(armed));
        T_EQ(symm_fail_arm(spec), 0);
        for (int i = 0; i < symm_fp_count; i++) T_EQ(symm_fail_hit(i), i == armed);
    }
    T_STREQ(symm_fail_name(symm_fp_vmm_map), "vmm_map");
    T_STREQ(symm_fail_name(-1), "?");
    T_STREQ(symm_fail_name(symm_fp_count), "?");
}

static void only_the_nth_hit_fails(void) {
    T_EQ(symm_fail_arm("vmm_map:error:3"), 0);
    for (int i = 1; i <= 5; i++) T_EQ(SYMM_FAIL_HERE(vmm_map), i == 3);
    T_EQ(symm_fail_hits(symm_fp_vmm_map), 5);
    T_EQ(symm_fail_arm("vmm_map:error:0"), 0); /* 0: every hit */
    T_EQ(symm_fail_hits(symm_fp_vmm_map), 0);
    for (int i = 1; i <= 3; i++) T_EQ(SYMM_FAIL_HERE(vmm_map), 1);
}

static void arming_again_replaces_and_empty_disarms(void) {
    T_EQ(symm_fail_arm("vmm_map:error,slot_record:error:2"), 0);
    T_EQ(SYMM_FAIL_HERE(vmm_map), 1);
    T_EQ(SYMM_FAIL_HERE(slot_record), 0);
    T_EQ(SYMM_FAIL_HERE(slot_record), 1);
    T_EQ(symm_fail_arm("win_record:error"), 0);
    T_EQ(SYMM_FAIL_HERE(vmm_map), 0);
    T_EQ(SYMM_FAIL_HERE(win_record), 1);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(SYMM_FAIL_HERE(win_record), 0);
}

static void one_point_can_be_armed_for_several_hits(void) {
    T_EQ(symm_fail_arm("mesh_send:error:1,mesh_send:error:3"), 0);
    T_EQ(SYMM_FAIL_HERE(mesh_send), 1);
    T_EQ(SYMM_FAIL_HERE(mesh_send), 0);
    T_EQ(SYMM_FAIL_HERE(mesh_send), 1);
    T_EQ(SYMM_FAIL_HERE(mesh_send), 0);
}

static void bad_specs_change_nothing(void) {
    static const char *const bad[] = {"vmm_map",
                                      "nowhere:error",
                                      "vmm_map:explode",
                                      "vmm_map:error:x",
                                      "vmm_map:error:-1",
                                      "vmm_map:error:1:x",
                                      "vmm_map:error:1:2:3",
                                      "vmm_map:error,",
                                      ",vmm_map:error",
                                      "vmm_map:delay=",
                                      "vmm_map:delay=-5",
                                      "vmm_map:delay=99999999",
                                      "vmm_map: error",
                                      ":error",
                                      "vmm_map:",
                                      "vmm_map:error:"};
    char endless[1024];
    T_EQ(symm_fail_arm("vmm_map:error:2"), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        T_CHECKF(symm_fail_arm(bad[i]) == -1, "\"%s\" was taken", bad[i]);
        T_EQ(symm_fail_check(bad[i]), -1);
    }
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    T_EQ(symm_fail_arm(endless), -1);
    T_EQ(SYMM_FAIL_HERE(vmm_map), 0);
    T_EQ(SYMM_FAIL_HERE(vmm_map), 1);
}

static void hit_as_rank(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    T_EQ(SYMM_FAIL_HERE(win_commit), 0); /* no rank yet */
    symm_log_rank(rank);
    T_EQ(SYMM_FAIL_HERE(win_commit), 0);
    T_EQ(SYMM_FAIL_HERE(win_commit), rank == 2); /* the second of this rank's own hits */
    T_EQ(SYMM_FAIL_HERE(win_commit), 0);
}

static void a_rank_counts_its_own_hits(void) {
    T_EQ(symm_fail_arm("win_commit:error:2:2"), 0);
    T_THREADS(4, hit_as_rank, NULL);
    T_EQ(symm_fail_hits(symm_fp_win_commit), 16);
    T_EQ(symm_fail_arm("win_commit:error:2:2"), 0); /* forked ranks would go on from these counts */
    T_FORK(4, hit_as_rank, NULL);
}

static void a_delay_sleeps_and_goes_on(void) {
    struct timespec a, b;
    T_EQ(symm_fail_arm("mesh_recv:delay=50:1"), 0);
    clock_gettime(CLOCK_MONOTONIC, &a);
    T_EQ(SYMM_FAIL_HERE(mesh_recv), 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    T_CHECK((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec >= 50000000L);
    T_EQ(symm_fail_arm("mesh_recv:delay=1,mesh_recv:error"), 0); /* both */
    T_EQ(SYMM_FAIL_HERE(mesh_recv), 1);
}

static void kill_ends_the_process(void) {
    int status;
    T_EQ(symm_fail_arm("agree_commit:kill:2"), 0);
    pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        if (SYMM_FAIL_HERE(agree_commit)) _exit(1);
        (void)SYMM_FAIL_HERE(agree_commit);
        _exit(2);
    }
    while (waitpid(pid, &status, 0) < 0) T_EQ(errno, EINTR);
    T_CHECK(WIFSIGNALED(status));
    T_EQ(WTERMSIG(status), SIGKILL);
}

static void killed_as_rank(int rank, int n, void *arg) {
    (void)n;
    (void)arg;
    symm_log_rank(rank);
    T_EQ(SYMM_FAIL_HERE(comm_watch), 0);
    T_CHECK(rank != 1);
}

static void kill_takes_the_named_rank_only(void) {
    T_EQ(symm_fail_arm("comm_watch:kill:0:1"), 0);
    T_FORK_DIES(3, 1, killed_as_rank, NULL);
}

static void the_environment_arms_at_the_first_hit(void) {
    setenv("SYMM_FAIL", "vmm_create:error:1", 1);
    T_EQ(SYMM_FAIL_HERE(vmm_create), 1);
    T_EQ(SYMM_FAIL_HERE(vmm_create), 0);
}

static void loading_arms_when_the_variable_changes(void) {
    symm_params p;
    setenv("SYMM_FAIL", "vmm_create:error:2", 1);
    T_OK(symm_param_load(&p));
    T_EQ(SYMM_FAIL_HERE(vmm_create), 0);
    T_OK(symm_param_load(&p)); /* the same value: the count goes on */
    T_EQ(SYMM_FAIL_HERE(vmm_create), 1);
    setenv("SYMM_FAIL", "vmm_export:error", 1);
    T_OK(symm_param_load(&p));
    T_EQ(SYMM_FAIL_HERE(vmm_export), 1);
    unsetenv("SYMM_FAIL");
    T_OK(symm_param_load(&p));
    T_EQ(SYMM_FAIL_HERE(vmm_export), 0);
    T_EQ(symm_fail_arm("vmm_export:error"), 0);
    T_OK(symm_param_load(&p)); /* what a test armed outlives a load */
    T_EQ(SYMM_FAIL_HERE(vmm_export), 1);
}

static void a_bad_variable_is_refused_by_name(void) {
    symm_params p;
    T_EXPECT_WARNINGS();
    setenv("SYMM_FAIL", "vmm_mapp:error", 1);
    T_ERR(symm_param_load(&p), symmInvalidArgument);
    T_MSG(symm_status_text(), "SYMM_FAIL=vmm_mapp:error: must be a list of name:action");
}

T_MAIN(T(nothing_fails_unarmed), T(every_point_can_be_armed_alone), T(only_the_nth_hit_fails),
       T(arming_again_replaces_and_empty_disarms), T(one_point_can_be_armed_for_several_hits),
       T(bad_specs_change_nothing), T(a_rank_counts_its_own_hits), T(a_delay_sleeps_and_goes_on),
       T(kill_ends_the_process), T(kill_takes_the_named_rank_only),
       T(the_environment_arms_at_the_first_hit), T(loading_arms_when_the_variable_changes),
       T(a_bad_variable_is_refused_by_name))

#else

static void release_builds_have_no_failpoints(void) {
    symm_params p;
    T_EXPECT_WARNINGS();
    setenv("SYMM_FAIL", "vmm_map:error", 1);
    T_EQ(SYMM_FAIL_HERE(vmm_map), 0);
    T_OK(symm_param_load(&p)); /* warned about as an unknown name */
    T_EQ(p.fail[0], 0);
}

T_MAIN(T(release_builds_have_no_failpoints))

#endif
