/* fail.c - failpoints of test builds; empty in release builds. Any thread; fail_lock guards what is
 * armed and the hit counts, and is released before a hit kills or sleeps. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fail.h"

#ifdef SYMM_TESTING

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

enum {
    MAX_ARMED = 32,
    SPEC_BYTES = 256,
    MAX_DELAY_MS = 600000,
    MAX_NTH = 1000000,
    MAX_RANK = 65535
};
enum { ERROR, KILL, DELAY };

typedef struct {
    int point, action, delay_ms;
    int nth;  /* 0: every hit */
    int rank; /* -1: every rank */
    int seen; /* hits that the rank let through */
} armed_t;

static pthread_mutex_t fail_lock = PTHREAD_MUTEX_INITIALIZER;
static armed_t armed[MAX_ARMED]; /* under fail_lock, as is everything below */
static int armed_count;
static int hits[symm_fp_count];
static char env_spec[SPEC_BYTES]; /* what the environment armed last */
static int env_seen;              /* the environment was looked at */

static const char *const names[] = {
#define SYMM_FAILPOINT(name, where, help) #name,
#include "fail.def"
#undef SYMM_FAILPOINT
};

static const char *const places[] = {
#define SYMM_FAILPOINT(name, where, help) where,
#include "fail.def"
#undef SYMM_FAILPOINT
};

static const char *const helps[] = {
#define SYMM_FAILPOINT(name, where, help) help,
#include "fail.def"
#undef SYMM_FAILPOINT
};

const char *symm_fail_name(int point) {
    return point >= 0 && point < symm_fp_count ? names[point] : "?";
}

const char *symm_fail_where(int point) {
    return point >= 0 && point < symm_fp_count ? places[point] : "";
}

const char *symm_fail_help(int point) {
    return point >= 0 && point < symm_fp_count ? helps[point] : "";
}

/* ---- specs -------------------------------------------------------------------------------- */

static int parse_number(const char *s, long max, int *out) {
    char *end;
    if (*s < '0' || *s > '9') return -1;
    errno = 0;
    long v = strtol(s, &end, 10);
    if (errno || *end || v > max) return -1;
    *out = (int)v;
    return 0;
}

static int parse_point(const char *s, int *point) {
    for (int i = 0; i < symm_fp_count; i++) {
        if (strcmp(s, names[i]) != 0) continue;
        *point = i;
        return 0;
    }
    return -1;
}

static int parse_action(const char *s, armed_t *a) {
    a->action = ERROR;
    if (strcmp(s, "error") == 0) return 0;
    a->action = KILL;
    if (strcmp(s, "kill") == 0) return 0;
    a->action = DELAY;
    if (strncmp(s, "delay=", 6) == 0) return parse_number(s + 6, MAX_DELAY_MS, &a->delay_ms);
    return -1;
}

/* name:action[:nth[:rank]]; cuts `s` up. */
static int parse_one(char *s, armed_t *a) {
    char *part[4] = {s, NULL, NULL, NULL};
    int n = 1;
    for (char *colon = strchr(s, ':'); colon; colon = strchr(colon + 1, ':')) {
        if (n == 4) return -1;
        *colon = 0;
        part[n++] = colon + 1;
    }
    *a = (armed_t){.rank = -1};
    if (n < 2 || parse_point(part[0], &a->point) || parse_action(part[1], a)) return -1;
    if (n > 2 && parse_number(part[2], MAX_NTH, &a->nth)) return -1;
    if (n > 3 && parse_number(part[3], MAX_RANK, &a->rank)) return -1;
    return 0;
}

/* How many failpoints the spec arms, or -1. */
static int parse_spec(const char *spec, armed_t *out) {
    char copy[SPEC_BYTES];
    int n = 0;
    size_t len = strlen(spec);
    if (len >= sizeof copy) return -1;
    memcpy(copy, spec, len + 1);
    if (!len) return 0;
    for (char *s = copy, *next; s; s = next) {
        next = strchr(s, ',');
        if (next) *next++ = 0;
        if (n == MAX_ARMED || parse_one(s, &out[n])) return -1;
        n++;
    }
    return n;
}

int symm_fail_check(const char *spec) {
    armed_t parsed[MAX_ARMED];
    return parse_spec(spec, parsed) < 0 ? -1 : 0;
}

static int arm_locked(const char *spec) {
    armed_t parsed[MAX_ARMED];
    int n = parse_spec(spec, parsed);
    if (n < 0) return -1;
    memcpy(armed, parsed, (size_t)n * sizeof *parsed);
    armed_count = n;
    memset(hits, 0, sizeof hits);
    return 0;
}

int symm_fail_arm(const char *spec) {
    pthread_mutex_lock(&fail_lock);
    env_seen = 1; /* the caller decides from now on; only a change of the environment rearms */
    int rc = arm_locked(spec);
    pthread_mutex_unlock(&fail_lock);
    return rc;
}

static void arm_env_locked(const char *value) {
    env_seen = 1;
    if (strcmp(value, env_spec) == 0 || arm_locked(value)) return;
    memcpy(env_spec, value, strlen(value) + 1); /* fits: arm_locked took it */
}

void symm_fail_env(const char *value) {
    pthread_mutex_lock(&fail_lock);
    arm_env_locked(value);
    pthread_mutex_unlock(&fail_lock);
}

/* ---- hits --------------------------------------------------------------------------------- */

int symm_fail_any(void) {
    pthread_mutex_lock(&fail_lock);
    const int any = armed_count > 0;
    pthread_mutex_unlock(&fail_lock);
    return any;
}

static int is_due(armed_t *a, int point) {
    if (a->point != point) return 0;
    if (a->rank >= 0 && a->rank != symm_log_rank_now()) return 0;
    a->seen++;
    return a->nth == 0 || a->nth == a->seen;
}

static void sleep_ms(int ms) {
    struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) continue;
}

int symm_fail_hit(int point) {
    int delay_ms = 0, fails = 0, kills = 0;
    pthread_mutex_lock(&fail_lock);
    if (!env_seen) {
        const char *value =
            getenv("SYMM_FAIL"); /* before the first communicator nobody else looks */
        arm_env_locked(value ? value : "");
    }
    hits[point]++;
    for (int i = 0; i < armed_count; i++) {
        if (!is_due(&armed[i], point)) continue;
        kills |= armed[i].action == KILL;
        fails |= armed[i].action == ERROR;
        if (armed[i].action == DELAY) delay_ms += armed[i].delay_ms;
    }
    pthread_mutex_unlock(&fail_lock);
    if (delay_ms) sleep_ms(delay_ms);
    if (kills) kill(getpid(), SIGKILL);
    return fails;
}

int symm_fail_hits(int point) {
    pthread_mutex_lock(&fail_lock);
    int n = hits[point];
    pthread_mutex_unlock(&fail_lock);
    return n;
}

#endif
