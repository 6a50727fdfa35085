// SPDX-License-Identifier: Apache-2.0
#include "report/tile_report.h"

enum { WARP = 32 };

typedef struct {
  char text[48];
} column;

static const char *result_of(const tsr_program *p, const tsr_task *t) {
  if (t->fused || !t->outputs_count) return p->graph->nodes[t->node].name;
  return p->graph->values[tsr_task_output(p, t, 0)].name;
}

/* "(12, 1, 1)"; "-": a library's. */
static column triple(const unsigned of[3]) {
  column c = {"-"};
  if (of[0]) snprintf(c.text, sizeof c.text, "(%u, %u, %u)", of[0], of[1], of[2]);
  return c;
}

static column number(int64_t n, bool known) {
  column c = {"-"};
  if (known) snprintf(c.text, sizeof c.text, "%lld", (long long)n);
  return c;
}

static void print_launch(const tsr_kernel_launch *l, tsr_text *text) {
  bool own = l->block[0] > 0;
  int64_t threads = (int64_t)l->block[0] * l->block[1] * l->block[2];
  tsr_text_add(
      text, "  %-16s %-13s %5s  %7s  %5lld", triple(l->grid).text, triple(l->block).text,
      number(threads / WARP, own).text, number(l->shared_bytes, own).text, (long long)l->count);
  tsr_text_add(text, "  %s", l->kernel);
  if (l->tile[0]) tsr_text_add(text, " %s", l->tile);
}

static void print_cpu(const tsr_task_tiles *t, bool on_host, tsr_text *text) {
  if (on_host) tsr_text_add(text, "  on the host: %lld items", (long long)t->items);
  else tsr_text_add(text, "  %12lld", (long long)t->items);
  tsr_text_add(text, on_host ? " in %d ranges, %d rounds" : "  %6d  %6d", t->ranges, t->rounds);
  int64_t grain = t->ranges > 0 ? (t->items + t->ranges - 1) / t->ranges : 0;
  if (!on_host) tsr_text_add(text, "  %12lld", (long long)grain);
  tsr_text_add(text, "  %s", t->tile ? t->tile : "-");
}

static void print_task(const tsr_tile_source *s, const tsr_program *p, int index, tsr_text *text) {
  const tsr_task *t = &p->tasks[index];
  tsr_task_tiles tiles = {0};
  s->find(s->context, p, t, &tiles);
  tsr_text_add(
      text, "%5d  %-8s  %-22s", index, tsr_section_name(t->section), tsr_task_op_name(p, t).text);
  if (tiles.note) tsr_text_add(text, "  - %s", tiles.note);
  else if (tiles.on_cpu) print_cpu(&tiles, !s->on_cpu, text);
  else if (!tiles.launches.count) tsr_text_add(text, "  - nothing of it is this rank's");
  for (int i = 0; i < tiles.launches.count; i++) {
    if (i) tsr_text_add(text, "\n%39s", "");
    print_launch(&tiles.launches.launches[i], text);
    if (!i) tsr_text_add(text, "  %s", result_of(p, t));
  }
  if (!tiles.launches.count) tsr_text_add(text, "  %s", result_of(p, t));
  tsr_text_add(text, "\n");
}

void tsr_tiles_print(const tsr_tile_source *s, const tsr_program *p, tsr_text *text) {
  tsr_text_add(text, "tiles of each task on %s:\n", s->device);
  tsr_text_add(text, "%5s  %-8s  %-22s", "task", "section", "op");
  if (s->on_cpu)
    tsr_text_add(
        text, "  %12s  %6s  %6s  %12s  %s\n", "items", "ranges", "rounds", "of a range",
        "tile, result");
  else
    tsr_text_add(
        text, "  %-16s %-13s %5s  %7s  %5s  %s\n", "grid", "block", "warps", "shared", "times",
        "kernel, tile, result");
  for (int i = 0; i < p->tasks_count; i++) print_task(s, p, i, text);
  if (!s->on_cpu) tsr_text_add(text, "-: a library chooses its own geometry\n");
}
