/* info_map.h - the map of a heap: read from the JSON that symmHeapDump writes, drawn as SVG. One
 * thread, no lock. */
#ifndef INFO_MAP_H_
#define INFO_MAP_H_

#include "host/heap/heap_chart.h"

typedef struct {
    symm_chart chart; /* its lists and its name are below */
    char name[64];
    struct info_map_zone {
        symm_chart_chunk *chunks;
        symm_chart_piece *pieces;
        int chunk_cap, piece_cap;
    } zone[2];
} info_map;

/* 0, or -1: json is no dump of a heap, and *at is the byte where that shows. info_map_end frees
 * what it has read, in both cases. */
int info_map_read(const char *json, info_map *m, size_t *at);
void info_map_end(info_map *m);
void info_map_svg(symm_text *t, const symm_chart *m); /* info_map_svg.c */

/* Draws the dump in file `dump` into file `svg`. 1: failed, and said why. */
int info_map_draw(const char *dump, const char *svg);
/* The same of a dump that is open for reading; name: of it, in errors. */
int info_map_draw_fd(int fd, const char *name, const char *svg);

#endif
