// SPDX-License-Identifier: Apache-2.0
#include "pictures/pictures.h"
#include "pictures/rank_blocks.h"
#include "pictures/svg.h"
#include "plan/rank_traffic.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Cells of more blocks have no list of collectives. */
enum { BLOCKS_MAX = 64, KINDS_BLOCKS_MAX = 32, KINDS_MAX = 9 * TSR_AXES };
enum { WIDTH = 1040, MATRIX = 544, LEFT = 84, TOP = 104, SUMS = 44, TABLE = 716, SMALL = 176 };

/* What one collective over one axis sends. */
typedef struct {
  tsr_op op;
  int axis;
  double *bytes; /* (blocks, blocks): from, to */
} kind;

typedef struct {
  tsr_arena *arena;
  const tsr_report *report;
  tsr_rank_blocks blocks;
  kind kinds[KINDS_MAX];
  int kinds_count;
  const tsr_rank_flow *flow; /* the one that is added now, and its kind */
  kind *kind_of_flow;
  double *all;               /* (blocks, blocks) */
  double least, most, total; /* of cells that are not 0; of all of them */
  double cell;
  tsr_text *svg;
} page;

/* ---- the numbers ---- */

static kind *find_kind(page *p, tsr_op op, int axis) {
  for (int i = 0; i < p->kinds_count; i++)
    if (p->kinds[i].op == op && p->kinds[i].axis == axis) return &p->kinds[i];
  assert(p->kinds_count < KINDS_MAX);
  kind *k = &p->kinds[p->kinds_count++];
  *k = (kind){.op = op, .axis = axis};
  k->bytes = tsr_arena_array(p->arena, double, p->blocks.count * p->blocks.count);
  return k;
}

static void add_pairs(void *context, const tsr_rank_flow *flow, int from, int to, int64_t pairs) {
  page *p = context;
  if (flow != p->flow) {
    p->flow = flow;
    p->kind_of_flow = find_kind(p, flow->op, flow->axis);
  }
  int at = from * p->blocks.count + to;
  double bytes = (double)pairs * flow->bytes;
  p->all[at] += bytes;
  p->total += bytes;
  p->kind_of_flow->bytes[at] += bytes;
}

static void count_bytes(page *p) {
  const tsr_report *r = p->report;
  tsr_rank_traffic traffic;
  int cells = p->blocks.count * p->blocks.count;
  p->all = tsr_arena_array(p->arena, double, cells);
  tsr_rank_traffic_make(
      p->arena, &r->programs[0], r->parallel, tsr_config_all_reduce(r->config), &traffic);
  tsr_rank_traffic_visit(
      p->arena, &traffic, r->parallel, p->blocks.of_rank, p->blocks.count, add_pairs, p);
  for (int i = 0; i < cells; i++) {
    if (p->all[i] <= 0) continue;
    p->most = fmax(p->most, p->all[i]);
    p->least = p->least > 0 ? fmin(p->least, p->all[i]) : p->all[i];
  }
}

static tsr_short_text bytes_text(double bytes) { return tsr_text_count((int64_t)(bytes + 0.5)); }

/* The colour, on a logarithmic scale. */
static int level_of(const page *p, double bytes) {
  if (p->most <= p->least * 1.0001) return TSR_SVG_LEVELS - 2;
  int level = (int)(TSR_SVG_LEVELS * log(bytes / p->least) / log(p->most / p->least));
  return level < 0 ? 0 : level < TSR_SVG_LEVELS ? level : TSR_SVG_LEVELS - 1;
}

/* ---- the matrix ---- */

static const char *noun(const page *p) { return p->blocks.size > 1 ? "ranks" : "rank"; }

static void draw_cell(const page *p, int from, int to) {
  int at = from * p->blocks.count + to;
  tsr_text tip = {0};
  char class[16];
  tsr_text_add(
      &tip, "%s %s to %s %s: %s bytes", noun(p), tsr_rank_block_text(&p->blocks, from).text,
      noun(p), tsr_rank_block_text(&p->blocks, to).text, bytes_text(p->all[at]).text);
  for (int k = 0; k < p->kinds_count && p->blocks.count <= KINDS_BLOCKS_MAX; k++)
    if (p->kinds[k].bytes[at] > 0)
      tsr_text_add(
          &tip, "; %s %s %s", tsr_op_name(p->kinds[k].op), tsr_axis_name(p->kinds[k].axis),
          bytes_text(p->kinds[k].bytes[at]).text);
  snprintf(class, sizeof class, "h%d", level_of(p, p->all[at]));
  double gap = p->cell > 12 ? 1 : 0.25;
  tsr_svg_rect(
      p->svg, class, LEFT + to * p->cell, TOP + from * p->cell, p->cell - gap, p->cell - gap,
      tip.data);
  tsr_text_free(&tip);
}

static void draw_labels(const page *p) {
  int every = (int)ceil(15 / p->cell), count = p->blocks.count;
  double end = count * p->cell;
  for (int b = 0; b < count; b += every) {
    double at = (b + 0.5) * p->cell + 4;
    tsr_svg_textf(
        p->svg, "small soft", "end", LEFT - 6, TOP + at, "%d", p->blocks.ranks[b * p->blocks.size]);
    int wide = (int)ceil(48 / p->cell);
    if (b % (every > wide ? every : wide) == 0)
      tsr_svg_textf(
          p->svg, "small soft", "middle", LEFT + at - 4, TOP - 7, "%d",
          p->blocks.ranks[b * p->blocks.size]);
  }
  tsr_svg_text(p->svg, "small soft", "start", 24, TOP - 7, "from \\ to");
  tsr_svg_text(p->svg, "small soft", "start", LEFT + end + 10, TOP - 7, "sent");
}

static void draw_sums(const page *p) {
  int count = p->blocks.count;
  double *sums = tsr_arena_array(p->arena, double, count), most = 0;
  for (int from = 0; from < count; from++) {
    for (int to = 0; to < count; to++) sums[from] += p->all[from * count + to];
    most = fmax(most, sums[from]);
  }
  for (int from = 0; from < count; from++) {
    tsr_short_text name = tsr_rank_block_text(&p->blocks, from);
    tsr_text tip = {0};
    tsr_text_add(&tip, "%s %s: %s bytes sent", noun(p), name.text, bytes_text(sums[from]).text);
    if (sums[from] > 0)
      tsr_svg_rect(
          p->svg, "c0", LEFT + count * p->cell + 10, TOP + from * p->cell + p->cell * 0.1,
          SUMS * sums[from] / most, p->cell * 0.8, tip.data);
    tsr_text_free(&tip);
  }
}

static void draw_scale(const page *p, double y) {
  double x = LEFT;
  if (p->total <= 0) return;
  tsr_svg_text(p->svg, "small", "end", x - 6, y + 11, tsr_text_bytes((int64_t)p->least).text);
  for (int l = 0; l < TSR_SVG_LEVELS; l++) {
    char class[16];
    snprintf(class, sizeof class, "h%d", l);
    tsr_svg_rect(p->svg, class, x + 22 * l, y, 21, 14, NULL);
  }
  tsr_svg_textf(
      p->svg, "small", "start", x + 22 * TSR_SVG_LEVELS + 6, y + 11,
      "%s from one %s to another, logarithmic; empty: nothing",
      tsr_text_bytes((int64_t)p->most).text, p->blocks.size > 1 ? "cell" : "rank");
}

static void draw_matrix(const page *p) {
  int count = p->blocks.count;
  double end = count * p->cell;
  tsr_svg_rect(p->svg, "panel", LEFT, TOP, end, end, NULL);
  draw_labels(p);
  for (int from = 0; from < count; from++)
    for (int to = 0; to < count; to++)
      if (p->all[from * count + to] > 0) draw_cell(p, from, to);
  draw_sums(p);
}

/* ---- the table ---- */

static int busiest_stage(const tsr_report *r) {
  int most = 0;
  for (int s = 1; s < r->programs->pipeline->stages; s++)
    if (r->estimate->stages[s].communication > r->estimate->stages[most].communication) most = s;
  return most;
}

/* As plan prints it, of the stage that has the most. */
static void draw_table(const page *p) {
  enum { ROWS_MAX = 26 };
  const tsr_report *r = p->report;
  int stage = busiest_stage(r);
  const tsr_estimate_stage *s = &r->estimate->stages[stage];
  double y = TOP;
  if (r->programs->pipeline->stages > 1)
    tsr_svg_textf(p->svg, "strong", "start", TABLE, y, "A rank of stage %d and a step", stage);
  else tsr_svg_text(p->svg, "strong", "start", TABLE, y, "A rank and a step");
  y += 22;
  tsr_svg_text(p->svg, "small soft", "start", TABLE, y, "collective");
  tsr_svg_text(p->svg, "small soft", "start", TABLE + 98, y, "axis");
  tsr_svg_text(p->svg, "small soft", "start", TABLE + 132, y, "path");
  tsr_svg_text(p->svg, "small soft", "end", TABLE + 224, y, "times");
  tsr_svg_text(p->svg, "small soft", "end", TABLE + 300, y, "sent");
  for (int i = 0; i < s->transfers_count; i++) {
    const tsr_estimate_transfer *t = &s->transfers[i];
    y += 18;
    if (i == ROWS_MAX) {
      tsr_svg_textf(p->svg, "small soft", "start", TABLE, y, "%d more", s->transfers_count - i);
      break;
    }
    tsr_svg_text(p->svg, "small", "start", TABLE, y, tsr_op_name(t->op));
    tsr_svg_text(p->svg, "small", "start", TABLE + 98, y, tsr_axis_name(t->axis));
    tsr_svg_text(p->svg, "small", "start", TABLE + 132, y, *t->path ? t->path : "none");
    tsr_svg_text(p->svg, "small", "end", TABLE + 224, y, tsr_text_count(t->count).text);
    tsr_svg_text(p->svg, "small", "end", TABLE + 300, y, tsr_text_bytes((int64_t)t->sent).text);
  }
  if (!s->transfers_count)
    tsr_svg_text(p->svg, "small", "start", TABLE, y + 18, "no communication");
}

/* ---- an axis each ---- */

static void draw_levels(const page *p, const double *bytes, double x, double y, double cell) {
  int count = p->blocks.count;
  tsr_text paths[TSR_SVG_LEVELS] = {{0}};
  for (int from = 0; from < count; from++)
    for (int to = 0, end; to < count; to = end) {
      const double *row = bytes + from * count;
      int level = row[to] > 0 ? level_of(p, row[to]) : -1;
      for (end = to + 1; end < count; end++)
        if ((row[end] > 0 ? level_of(p, row[end]) : -1) != level) break;
      if (level < 0) continue;
      tsr_short_text width = tsr_svg_number((end - to) * cell), height = tsr_svg_number(cell);
      tsr_text_add(
          &paths[level], "M%s %sh%sv%sh-%sz", tsr_svg_number(x + to * cell).text,
          tsr_svg_number(y + from * cell).text, width.text, height.text, width.text);
    }
  for (int l = 0; l < TSR_SVG_LEVELS; l++) {
    if (paths[l].data) tsr_text_add(p->svg, "<path class=\"h%d\" d=\"%s\"/>\n", l, paths[l].data);
    tsr_text_free(&paths[l]);
  }
}

static double draw_axis(const page *p, int axis, double x, double y) {
  int count = p->blocks.count, found = 0;
  double *bytes = tsr_arena_array(p->arena, double, count *count), total = 0;
  tsr_text ops = {0};
  for (int k = 0; k < p->kinds_count; k++) {
    if (p->kinds[k].axis != axis) continue;
    tsr_text_add(&ops, "%s%s", found++ ? ", " : "", tsr_op_name(p->kinds[k].op));
    for (int i = 0; i < count * count; i++) {
      bytes[i] += p->kinds[k].bytes[i];
      total += p->kinds[k].bytes[i];
    }
  }
  if (found) {
    tsr_svg_textf(
        p->svg, "strong", "start", x, y, "%s: %s", tsr_axis_name(axis),
        tsr_text_bytes((int64_t)total).text);
    tsr_svg_text_cut(p->svg, "small soft", x, y + 16, SMALL, ops.data);
    tsr_svg_rect(p->svg, "panel", x, y + 24, SMALL, SMALL, NULL);
    draw_levels(p, bytes, x, y + 24, (double)SMALL / count);
  }
  tsr_text_free(&ops);
  return found ? x + SMALL + 22 : x;
}

static void draw_head(const page *p) {
  const tsr_report *r = p->report;
  tsr_text mesh = {0};
  tsr_svg_textf(
      p->svg, "head", "start", 24, 34, "Communication of a step: %s",
      tsr_text_bytes((int64_t)p->total).text);
  tsr_text_add(
      &mesh, "%s: %s rank%s, ", r->graph->name, tsr_text_count(r->parallel->ranks).text,
      r->parallel->ranks == 1 ? "" : "s");
  if (r->parallel->ndim) tsr_parallel_topology(r->parallel, &mesh);
  else tsr_text_add(&mesh, "no mesh axes");
  tsr_text_add(&mesh, "; %s bytes between all pairs of ranks", bytes_text(p->total).text);
  tsr_svg_text(p->svg, "small soft", "start", 24, 71, tsr_rank_blocks_note(&p->blocks).text);
  tsr_svg_text_cut(p->svg, "soft", 24, 54, WIDTH - 48, mesh.data);
  tsr_text_free(&mesh);
}

void tsr_picture_communication(tsr_arena *arena, const tsr_report *report, tsr_text *svg) {
  tsr_text body = {0};
  page p = {.arena = arena, .report = report, .svg = &body};
  p.blocks = tsr_rank_blocks_make(arena, report, BLOCKS_MAX);
  p.cell = fmin((double)MATRIX / p.blocks.count, 68);
  count_bytes(&p);
  draw_head(&p);
  draw_matrix(&p);
  draw_table(&p);
  double y = TOP + fmax(p.blocks.count * p.cell, 130) + 18;
  const tsr_estimate_stage *s = &report->estimate->stages[busiest_stage(report)];
  y = fmax(y, TOP + 40 + 18.0 * s->transfers_count);
  draw_scale(&p, y);
  y += 48;
  double x = 24;
  for (int axis = 0; axis < TSR_AXES; axis++) x = draw_axis(&p, axis, x, y);
  if (x > 24) y += SMALL + 36;
  char about[160];
  snprintf(
      about, sizeof about, "%s bytes between %d ranks", bytes_text(p.total).text,
      report->parallel->ranks);
  tsr_svg_begin(svg, WIDTH, y, "Communication of a step", about);
  tsr_text_add_bytes(svg, body.data, body.length);
  tsr_svg_end(svg);
  tsr_text_free(&body);
}
