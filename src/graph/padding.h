// SPDX-License-Identifier: Apache-2.0
/* How a dimension is stored of which a multiple of blocks is needed: as `blocks` blocks of one
 * length, of which the first ones have an index more of the real ones than the others where these
 * do not divide. What a block is longer than its real indices is padding behind them, always zero;
 * no checkpoint, hash or export has it. With one block all padding is behind the real ones, as that
 * of a vocabulary.
 *
 *   10 real indices in 4 blocks, stored as 12:  0 1 2  3 4 5  6 7 -  8 9 - */
#ifndef TSR_GRAPH_PADDING_H
#define TSR_GRAPH_PADDING_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int dim;
  int64_t real, blocks; /* real indices, of what dimension `dim` stores; blocks >= 1 */
} tsr_padding;

/* The first real index of a block, or the end. The first blocks have one more than the others. */
static inline int64_t tsr_padding_begin(const tsr_padding *p, int64_t block) {
  int64_t longer = p->real % p->blocks;
  return block * (p->real / p->blocks) + (block < longer ? block : longer);
}

/* Neighbours that are real in a stored range and neighbours among the real ones, too. */
typedef struct {
  int64_t at;          /* the first one's place in the range */
  int64_t begin, size; /* among the real ones */
} tsr_real_run;

/* The next run of [first, first + size) of the `stored` indices of the dimension, behind *run,
 * which is {0} at first; false: there is none. */
bool tsr_padding_next(
    const tsr_padding *padding, int64_t stored, int64_t first, int64_t size, tsr_real_run *run);
/* Runs of any range, at most. */
static inline int64_t tsr_padding_runs(const tsr_padding *p) { return p->blocks; }
/* Moves the real ones of a whole tensor to where they are without padding. */
void tsr_padding_remove(const tsr_padding *padding, int ndim, const int64_t *stored, float *x);
/* The other way: from a tensor without padding to one that is stored, whose padding is zero. */
void tsr_padding_add(
    const tsr_padding *padding, int ndim, const int64_t *stored, const float *real,
    float *ret_stored);

#endif
