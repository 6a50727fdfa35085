// SPDX-License-Identifier: Apache-2.0
/* Ranks in blocks that are drawn as one cell each, so that meshes of any size are readable. Blocks
 * are parts of a host, a host, or several hosts, in the order of the devices. */
#ifndef TSR_PICTURES_RANK_BLOCKS_H
#define TSR_PICTURES_RANK_BLOCKS_H
#include "plan/report.h"

typedef struct {
  int count, size; /* blocks; ranks of one (the last may have fewer) */
  int *of_rank;    /* the block of a rank */
  int *ranks;      /* by block, ascending in each; block b is [b * size, (b + 1) * size) */
  int ranks_count;
  int64_t host_devices; /* 0: not known, or all devices are one host's */
} tsr_rank_blocks;

/* At most `most` blocks; single ranks in the order of their numbers where these are enough. */
tsr_rank_blocks tsr_rank_blocks_make(tsr_arena *arena, const tsr_report *report, int most);

/* "7", "0–7", "0–56 by 8", "0–3, 16–19, …" of ascending numbers. */
tsr_short_text tsr_number_set_text(const int *numbers, int count);
/* The ranks of a block. */
tsr_short_text tsr_rank_block_text(const tsr_rank_blocks *blocks, int block);
/* The coordinates of its ranks: "pp 0, dp 0–3, tp :" (:, all), without the axes' names
 * "0, 0–3, :"; "" without axes. */
tsr_short_text tsr_rank_block_coords(
    tsr_arena *arena, const tsr_rank_blocks *blocks, const tsr_parallel *parallel, int block,
    bool with_names);
/* Its ranks; how many. */
int tsr_rank_block_members(const tsr_rank_blocks *blocks, int block, const int **ret_ranks);
/* "A cell is 2 hosts of 8 ranks." and the like; "" where each rank has its own. */
tsr_short_text tsr_rank_blocks_note(const tsr_rank_blocks *blocks);

#endif
