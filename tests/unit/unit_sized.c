/* unit_sized.c - records that begin with their size (base/sized.h), of programs that know more
 * fields than this library, or ask for some. One rank, one thread. */
#include <string.h>

#include "base/sized.h"
#include "symm_arena.h"
#include "symm_domains.h"
#include "symm_explain.h"
#include "symm_heap.h"
#include "symm_lane.h"
#include "symm_vec.h"
#include "t.h"

/* A record as a newer header has it. */
#define MORE 40
#define NEWER(type)         \
    struct {                \
        type known;         \
        char unknown[MORE]; \
    }

/* Whether the answer is there, the fields that the library does not know are 0, and the size is
 * still the program's. */
static void answered(const void *record, size_t known, size_t size, const char *what) {
    const char *bytes = record;
    int set = 0, left = 0;
    T_CHECKF(*(const size_t *)record == size, "%s: has lost its size", what);
    for (size_t i = sizeof(size_t); i < known; i++) set |= bytes[i] != 0x5a;
    for (size_t i = known; i < size; i++) left |= bytes[i] != 0;
    T_CHECKF(set, "%s: nothing is answered", what);
    T_CHECKF(!left, "%s: a field that the library does not know is not 0", what);
}
#define ASK(type, call)                                      \
    do {                                                     \
        NEWER(type) asked;                                   \
        type *record = &asked.known;                         \
        memset(&asked, 0x5a, sizeof asked);                  \
        asked.known.size = sizeof asked;                     \
        T_OK(call);                                          \
        answered(&asked, sizeof(type), sizeof asked, #call); \
    } while (0)

static symmComm_t alone(void) {
    symmUniqueId_t id;
    symmComm_t comm = NULL;
    T_OK(symmGetUniqueId(&id));
    T_OK(symmCommInitRank(&comm, 1, id, 0));
    return comm;
}

static symmHeap_t some_heap(symmComm_t comm) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap = NULL;
    c.symBytes = c.localBytes = 1 << 20;
    T_OK(symmHeapCreate(comm, &c, &heap));
    return heap;
}

static void newer_programs_are_answered(void) {
    symmComm_t comm = alone();
    symmHeap_t heap = some_heap(comm);
    symmLane_t lane;
    symmArena_t arena;
    symmWindow_t win;
    void *buf, *block;
    T_OK(symmMemAlloc(&buf, 1 << 20));
    T_OK(symmWindowRegister(comm, buf, 1 << 20, &win, SYMM_WIN_DEFAULT));
    T_OK(symmLaneCreate(heap, NULL, &lane));
    T_OK(symmArenaCreate(heap, NULL, &arena));
    T_OK(symmHeapAlloc(heap, 4096, 0, SYMM_ALLOC_SYM, &block));
    ASK(symmCommInfo_t, symmCommQuery(comm, record));
    ASK(symmCommMem_t, symmCommMemQuery(comm, record));
    ASK(symmWindowInfo_t, symmWindowQuery(win, record));
    ASK(symmHeapInfo_t, symmHeapQuery(heap, record));
    ASK(symmMemInfo_t, symmMemQuery(block, record));
    ASK(symmLaneInfo_t, symmLaneQuery(lane, record));
    ASK(symmArenaInfo_t, symmArenaQuery(arena, record));
    ASK(symmMemSupport_t, symmMemQuerySupport(record));
    ASK(symmDomainInfo_t, symmDomainQuery(comm, record));
    ASK(symmExplain_t,
        symmExplain(comm, symmCollAllReduce, buf, buf, 4, symmInt32, symmSum, 0, record));
    ASK(symmExplain_t, symmExplainMessage(comm, 1, buf, 4, symmInt32, 0, record));
    T_OK(symmGroupStart());
    ASK(symmGroupInfo_t, symmGroupSimulateEnd(record));
    T_OK(symmGroupEnd());
    T_OK(symmArenaDestroy(arena));
    T_OK(symmLaneDestroy(lane));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

/* Settings of a newer header hold where those that the library does not know are 0. */
#define SET(type, initial, made, create, destroy, error) \
    do {                                                 \
        NEWER(type) asked = {.known = initial};          \
        const type *config = &asked.known;               \
        made = NULL;                                     \
        asked.known.size = sizeof asked;                 \
        T_OK(create);                                    \
        T_OK(destroy);                                   \
        asked.unknown[MORE - 1] = 1;                     \
        T_ERR(create, symmInvalidArgument);              \
        T_MSG(symmGetLastError(NULL), error);            \
        asked.unknown[MORE - 1] = 0;                     \
        asked.known.size = sizeof(type) - 1;             \
        T_ERR(create, symmInvalidArgument);              \
        T_MSG(symmGetLastError(NULL), error);            \
    } while (0)

static void newer_settings_hold_if_they_are_known(void) {
    T_EXPECT_WARNINGS(); /* what is refused */
    symmComm_t comm = alone();
    symmHeap_t heap;
    symmVec_t vec;
    symmArena_t arena;
    SET(symmHeapConfig_t, SYMM_HEAP_CONFIG_INITIALIZER, heap, symmHeapCreate(comm, config, &heap),
        symmHeapDestroy(heap), "of a newer header no field may be set");
    SET(symmVecConfig_t, SYMM_VEC_CONFIG_INITIALIZER, vec, symmVecCreate(comm, config, &vec),
        symmVecDestroy(vec), "of a newer header no field may be set");
    heap = some_heap(comm);
    SET(symmArenaConfig_t, SYMM_ARENA_CONFIG_INITIALIZER, arena,
        symmArenaCreate(heap, config, &arena), symmArenaDestroy(arena),
        "of a newer header no field may be set");
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

/* Programs that know fewer fields, once records have grown. */
static void older_programs_keep_what_they_have(void) {
    typedef struct {
        size_t size;
        int first, second, third;
    } now;
    struct {
        size_t size;
        int first, guard;
    } then = {offsetof(now, second), 7, 77};
    void *volatile at = &then; /* the compiler must not know how long it is */
    now settings = {sizeof settings, 1, 2, 3};
    const now answer = {sizeof answer, 4, 5, 6};
    T_CHECK(symm_sized_holds(at, offsetof(now, second)));
    T_CHECK(!symm_sized_holds(at, sizeof(now)));
    T_CHECK(!symm_sized_holds(NULL, 0));
    T_EQ(symm_sized_read(&settings, sizeof settings, offsetof(now, second), at), 0);
    T_CHECK(settings.size == sizeof settings && settings.first == 7 && settings.second == 2 &&
            settings.third == 3);
    symm_sized_answer(at, &answer, sizeof answer);
    T_CHECK(then.size == offsetof(now, second) && then.first == 4 && then.guard == 77);
    then.size = (size_t)-1; /* never set */
    T_CHECK(!symm_sized_holds(at, offsetof(now, second)));
    T_EQ(symm_sized_read(&settings, sizeof settings, offsetof(now, second), at), 1);
}

T_MAIN(T(newer_programs_are_answered), T(newer_settings_hold_if_they_are_known),
       T(older_programs_keep_what_they_have))
