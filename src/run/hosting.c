#include "run/hosting.h"

/* Ranks in the order in which they are laid: axes as in the mesh, but tp last. */
static void order_ranks(const tsr_parallel *p, int *order) {
  int axes[TSR_AXES], count = 0;
  for (int i = 0; i < p->ndim; i++)
    if (p->axis_of_dim[i] != TSR_TP) axes[count++] = p->axis_of_dim[i];
  if (p->size[TSR_TP] > 1) axes[count++] = TSR_TP;
  for (int i = 0; i < p->ranks; i++) {
    int rest = i, rank = 0;
    for (int a = count; a-- > 0; rest /= p->size[axes[a]])
      rank += rest % p->size[axes[a]] * p->stride[axes[a]];
    order[i] = rank;
  }
}

bool tsr_hosting_lay(
    tsr_arena *arena, const tsr_parallel *p, tsr_transport *t, tsr_hosting *ret,
    tsr_diags *diags) {
  *ret = (tsr_hosting){.workers = 1};
  if (!t || !t->table || t->workers == 1) return true;
  if (t->workers > p->ranks) {
    tsr_diag_error(
        diags, TSR_NOWHERE, "%d workers were started for %d rank%s: %d of them would have nothing to do",
        t->workers, p->ranks, p->ranks == 1 ? "" : "s", t->workers - p->ranks);
    tsr_diag_hint(diags, "start %d, or a larger mesh", p->ranks);
    return false;
  }
  int *order = tsr_arena_array(arena, int, p->ranks), *of = tsr_arena_array(arena, int, p->ranks);
  order_ranks(p, order);
  for (int w = 0; w < t->workers; w++)
    for (int64_t i = (int64_t)w * p->ranks / t->workers; i < (int64_t)(w + 1) * p->ranks / t->workers;
         i++)
      of[order[i]] = w;
  *ret = (tsr_hosting){t, t->worker, t->workers, of};
  return true;
}

void tsr_hosting_print(const tsr_hosting *h, int ranks, tsr_text *text) {
  if (h->workers == 1) return;
  tsr_text_add(text, "workers: %d, %s;", h->workers, h->transport->why);
  for (int w = 0; w < h->workers; w++) {
    tsr_text_add(text, "%s", w ? ", " : " ranks ");
    int shown = 0;
    for (int r = 0; r < ranks; r++) {
      if (h->worker_of[r] != w) continue;
      int last = r;
      while (last + 1 < ranks && h->worker_of[last + 1] == w) last++;
      if (last > r) tsr_text_add(text, "%s%d-%d", shown++ ? " " : "", r, last);
      else tsr_text_add(text, "%s%d", shown++ ? " " : "", r);
      r = last;
    }
    tsr_text_add(text, " on %s", h->transport->table->host(h->transport->state, w));
  }
  tsr_text_add(text, "\n");
}
