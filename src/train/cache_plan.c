// SPDX-License-Identifier: Apache-2.0
#include "train/cache_plan.h"
#include "kernels/attention.h"

/* The widest window of attention; 0: some of it sees all positions. */
static int64_t attention_window(const tsr_graph *g) {
  int64_t widest = 0;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op != TSR_OP_ATTENTION) continue;
    if (!n->attr.attention.window) return 0;
    if (n->attr.attention.window > widest) widest = n->attr.attention.window;
  }
  return widest;
}

/* A text's positions that are read or written while it has `new_tokens`, which may begin and end
 * inside pages. */
static int64_t pages_of_window(int64_t window, int64_t new_tokens, int64_t page) {
  int64_t positions = window + TSR_ATTENTION_CACHED_BEFORE + new_tokens;
  return tsr_cache_pages_each(positions, page) + 1;
}

tsr_cache_plan tsr_cache_plan_make(
    const tsr_compile_options *o, const tsr_compiled *c, int64_t pools, int64_t chunk) {
  tsr_cache_plan p = {.page = o->page ? o->page : TSR_CACHE_PAGE_STEP, .pools = pools};
  int64_t window = attention_window(c->graph);
  p.pages_each = p.pages_max = tsr_cache_pages_each(c->model->sequence, p.page);
  int64_t round = pages_of_window(window, chunk, p.page);
  if (window && round < p.pages_max) p.pages_max = round;
  p.pages = o->pages ? (o->pages + p.pools - 1) / p.pools : c->batch / p.pools * p.pages_max;
  return p;
}

bool tsr_cache_plan_check(const tsr_compile_options *o, const tsr_compiled *c, tsr_diags *diags) {
  const tsr_cache_plan *p = &c->cache;
  if (p->pages >= p->pages_max) return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE,
      "a cache of %lld pages%s has no room for one text of %lld tokens, which needs %lld pages of "
      "%lld",
      (long long)o->pages,
      p->pools > 1
          ? tsr_arena_printf(c->graph->arena, ", shared out to %lld ranks,", (long long)p->pools)
          : "",
      (long long)c->model->sequence, (long long)p->pages_max, (long long)p->page);
}
