/* graph_kit.h - tests keep a host graph and launch it: its executable is made with the first launch
 * and goes with the graph. Any thread; lock: that of the list. */
#ifndef GRAPH_KIT_H_
#define GRAPH_KIT_H_

#include <pthread.h>
#include <stdlib.h>

#include "symm.h"
#include "t.h"

struct xg_entry {
    struct xg_entry *next;
    symmGraph_t graph;
    symmGraphExec_t exec;
};
static pthread_mutex_t xg_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xg_entry *xg_list;

/* The graph's executable. What is no live graph has none: the error of symmGraphInstantiate. */
static inline symmResult_t xg_get(symmGraph_t graph, symmGraphExec_t *exec) {
    symmResult_t status = symmSuccess;
    pthread_mutex_lock(&xg_lock);
    struct xg_entry *e = xg_list;
    while (e && e->graph != graph) e = e->next;
    if (!e) {
        e = calloc(1, sizeof *e);
        T_CHECK(e != NULL);
        e->graph = graph;
        status = symmGraphInstantiate(graph, &e->exec);
        if (status) {
            free(e);
            e = NULL;
        } else {
            e->next = xg_list;
            xg_list = e;
        }
    }
    if (e) *exec = e->exec;
    pthread_mutex_unlock(&xg_lock);
    return status;
}

/* As xg_get, to be launched: NULL for NULL, and what is no executable for what is no graph. */
static inline symmGraphExec_t xg_exec(symmGraph_t graph) {
    symmGraphExec_t exec = NULL;
    if (graph && xg_get(graph, &exec)) exec = (symmGraphExec_t)(void *)graph;
    return exec;
}

static inline symmResult_t xg_launch(symmGraph_t graph, symmStream_t stream) {
    symmGraphExec_t exec;
    symmResult_t status = xg_get(graph, &exec);
    return status ? status : symmGraphLaunch(exec, stream);
}

/* The executable first, if there is one: so it waits for what still runs. */
static inline symmResult_t xg_destroy(symmGraph_t graph) {
    pthread_mutex_lock(&xg_lock);
    struct xg_entry **at = &xg_list;
    while (*at && (*at)->graph != graph) at = &(*at)->next;
    struct xg_entry *e = *at;
    pthread_mutex_unlock(&xg_lock);
    if (e) {
        symmResult_t status = symmGraphExecDestroy(e->exec);
        if (status) return status;
        pthread_mutex_lock(&xg_lock);
        for (at = &xg_list; *at != e; at = &(*at)->next) continue;
        *at = e->next;
        pthread_mutex_unlock(&xg_lock);
        free(e);
    }
    return symmGraphDestroy(graph);
}

#endif
