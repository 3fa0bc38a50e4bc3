/* mpg_lanes.c - lanes, graph plans, heaps and vectors that grow with a process per rank under
 * mpirun: the bodies of gpu_lane_cases.h over memory that is really handed from process to
 * process. Ranks beyond the GPUs share them in time slices. */
#include "mpg_kit.h"
#include "gpu_lane_cases.h"

static void run_process(rig_body fn) {
    const mpg_rank m = mpg_self();
    rig g = {.meet = mpg_meet, .rank = m.rank, .n = m.n, .comm = mpg_comm(&m)};
    set_up(&g);
    fn(&g);
    tear_down(&g);
    settle_plans();
}

static void a_block_is_used_again_behind_every_ranks_free(void) {
    run_process(case_stream);
}
static void a_replay_waits_for_late_peers(void) {
    run_process(case_replay);
}
static void launches_free_what_the_last_one_left(void) {
    run_process(case_auto_free);
}
static void graphs_with_addresses_of_their_own(void) {
    run_process(case_alias);
}
static void a_late_free_orders_every_graph_over_that_memory(void) {
    run_process(case_late_free);
}
static void explicit_nodes_wait_for_late_peers(void) {
    run_process(case_nodes);
}
static void a_heap_grows_under_late_peers(void) {
    run_process(case_grow);
}
static void a_vector_grows_while_peers_read_it(void) {
    run_process(case_vector);
}

T_MAIN_MPI(T(a_block_is_used_again_behind_every_ranks_free), T(a_replay_waits_for_late_peers),
           T(launches_free_what_the_last_one_left), T(graphs_with_addresses_of_their_own),
           T(a_late_free_orders_every_graph_over_that_memory),
           T(explicit_nodes_wait_for_late_peers), T(a_heap_grows_under_late_peers),
           T(a_vector_grows_while_peers_read_it))
