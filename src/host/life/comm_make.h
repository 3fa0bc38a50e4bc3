/* comm_make.h - what the files that create communicators share: comm_open.c (doors), comm_hello.c
 * (first exchange), comm_make.c (mesh, space, control block). Runs on the creating thread; no
 * lock. */
#ifndef SYMM_COMM_MAKE_H_
#define SYMM_COMM_MAKE_H_

#include "host/comm/types.h"

/* The second message, after the hello: what only matters once the ranks know they fit. Pointers are
 * for thread ranks. */
typedef struct {
    symm_mesh_addr addr;
    uint64_t space_id, new_id;
    void *mesh_share, *space_share, *pages_share;
    int32_t code, pad;
    char text[200];
} symm_greeting;

/* Random bytes; unique ones where the kernel gives none. */
void symm_random_fill(void *p, size_t n);
/* Trades hellos: the same error on every rank where one is not fit. Fills members[nranks] and what
 * c learns from the others. */
symmResult_t symm_comm_hello(symm_comm *c, symm_uuid *members);
/* Host backend: makes the pages that this rank polls (first_touch.c). */
void symm_comm_first_touch(const symm_comm *c);
/* This rank has no communicator to build: its hello says why, so that all ranks fail alike rather
 * than wait for it. Closes boot. status: why, with the text in the thread's last error. */
symmResult_t symm_comm_refuse(symm_boot *boot, symmResult_t status);
/* The same where the others may come late. */
symmResult_t symm_comm_refuse_by(symm_boot *boot, symmResult_t status, uint64_t deadline_ns);

#endif
