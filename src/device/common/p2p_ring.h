/* p2p_ring.h - point-to-point, what both backends share: how large the ring of an ordered pair of
 * ranks is, and which messages cross in one piece. Macros and enums: kernels of both compile it. */
#ifndef SYMM_P2P_RING_H_
#define SYMM_P2P_RING_H_

/* Bytes of the ring of an ordered pair, if scratch has room: a message that fits ends without its
 * receiver. FEW: where a communicator has at most so many ranks. */
enum { SYMM_P2P_FEW = 8 };
#define SYMM_P2P_RING_FEW (1u << 20)
#define SYMM_P2P_RING     (64u << 10)
/* Messages of up to SMALL bytes cross in one piece, if a ring has room for two. */
#define SYMM_P2P_SMALL           (8u << 10)
#define SYMM_P2P_ONE_PIECE(ring) ((ring) / 2 < SYMM_P2P_SMALL ? (ring) / 2 : SYMM_P2P_SMALL)
/* GPUs: what a ring takes of the scratch. Lines with flags need more room than their data. */
#define SYMM_P2P_GPU_BYTES(ring) (2 * (ring))

#endif
