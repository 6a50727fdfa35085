// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_need.h"
#include "plan/plan.h"

/* The process, or the first one of the host, in whose memory a rank is. */
static int owner_of(const tsr_rank_map *map, memory_owner owner, int rank) {
  int process = tsr_rank_map_process(map, rank);
  return owner == MEMORY_OF_RANK                 ? rank
         : owner == MEMORY_OF_HOST && map->hosts ? map->hosts[process]
                                                 : process;
}

int64_t memory_bytes_needed(app *a, const setup *s, const prepared *p, memory_owner owner) {
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  int count = tsr_plan_programs(&p->training, &p->evaluation, &p->generation, programs);
  int ranks = s->parallel->ranks, stages = programs[0].pipeline->stages;
  tsr_memory *of_stage = tsr_arena_array(a->arena, tsr_memory, stages);
  int64_t *sums = tsr_arena_array(a->arena, int64_t, ranks), most = 0;
  for (int i = 0; i < stages; i++) tsr_memory_of(programs, count, i, &of_stage[i]);
  for (int r = 0; r < ranks; r++) {
    const tsr_memory *m = &of_stage[tsr_parallel_coord(s->parallel, r, TSR_PP)];
    int64_t *sum = &sums[owner_of(&s->ranks, owner, r)];
    *sum += s->config->zero.offload == TSR_OFFLOAD_FILE ? m->total - m->state : m->total;
    if (*sum > most) most = *sum;
  }
  return most;
}
