// SPDX-License-Identifier: Apache-2.0
#include "pictures/shard_panels.h"
#include "pictures/svg.h"
#include <math.h>
#include <string.h>

enum { PANELS = 3, PANEL_GAP = 28 };

/* A value, and a program that has it. */
typedef struct {
  const tsr_program *program;
  int value;
  int64_t parts, bytes; /* of the whole tensor */
} candidate;

/* ---- which tensors ---- */

static int64_t parts_of(const tsr_program *p, int value) {
  int64_t parts = 1;
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement over = p->graph->values[value].placement[a];
    bool splits = over.kind == TSR_SHARD || over.kind == TSR_ROUTED || over.kind == TSR_OWNED;
    if (splits) parts *= tsr_placement_blocks(over, (int)p->lowering.size[a]);
  }
  return parts;
}

static bool is_placed_alike(const tsr_value *a, const tsr_value *b) {
  for (int i = 0; i < TSR_AXES; i++)
    if (!tsr_placement_equal(a->placement[i], b->placement[i])) return false;
  return true;
}

static bool is_better(const candidate *a, const candidate *than) {
  if (than->value < 0) return true;
  return a->parts != than->parts ? a->parts > than->parts : a->bytes > than->bytes;
}

/* Of parameters, or of what the forward pass computes. */
static candidate find_most(const tsr_programs *programs, bool is_param, const candidate *other) {
  candidate best = {.value = -1};
  for (int s = 0; s < programs->pipeline->stages; s++) {
    const tsr_program *p = programs->of_stage[s];
    for (int v = 0; v < p->graph->values_count; v++) {
      const tsr_value *value = &p->graph->values[v];
      tsr_segment segment = p->tensors[v].segment;
      bool computed = value->node >= 0 && segment == TSR_SEGMENT_WORK &&
                      p->graph->nodes[value->node].section == TSR_FORWARD && value->ndim > 0;
      if (is_param ? value->kind != TSR_VALUE_PARAM || segment == TSR_SEGMENT_ABSENT : !computed)
        continue;
      candidate c = {p, v, parts_of(p, v), tsr_dtype_size(value->dtype, tsr_value_elements(value))};
      if (other && is_placed_alike(value, &p->graph->values[other->value])) continue;
      if (other) c.parts = 0; /* the largest */
      if (is_better(&c, &best)) best = c;
    }
  }
  return best;
}

/* ---- one panel ---- */

static void add_placement(const tsr_program *p, int value, tsr_text *text) {
  const char *between = "";
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement over = p->graph->values[value].placement[a];
    if (p->lowering.size[a] < 2) continue;
    tsr_text_add(text, "%s%s: ", between, tsr_axis_name(a));
    if (a == TSR_PP) tsr_text_add(text, "by stage");
    else if (over.kind == TSR_SHARD) tsr_text_add(text, "dimension %d", over.dim);
    else if (over.kind == TSR_PARTIAL) tsr_text_add(text, "partial sums");
    else if (over.kind == TSR_OWNED) tsr_text_add(text, "an owner");
    else if (over.kind == TSR_ROUTED) tsr_text_add(text, "rows of experts");
    else tsr_text_add(text, "replicated");
    between = ", ";
  }
}

/* As inspect --tensor prints it. */
static void add_slice(const tsr_tensor_slice *s, tsr_text *text) {
  tsr_text_add(text, "[");
  for (int d = 0; d < s->ndim; d++)
    tsr_text_add(
        text, "%s%lld:%lld", d ? ", " : "", (long long)s->offset[d],
        (long long)(s->offset[d] + s->shape[d]));
  tsr_text_add(text, "]");
}

/* The number of a part among all, and how many they are. */
static int part_number(const tsr_tensor_slice *s, int *ret_count) {
  int64_t number = 0, count = 1;
  for (int d = 0; d < s->ndim; d++) {
    int64_t blocks = s->shape[d] ? (s->global[d] + s->shape[d] - 1) / s->shape[d] : 1;
    number = number * blocks + (s->shape[d] ? s->offset[d] / s->shape[d] : 0);
    count *= blocks;
  }
  *ret_count = (int)count;
  return number < count ? (int)number : (int)count - 1;
}

/* The first rank of a block that has a part of the value, with its coordinates; -1: none. */
static int find_holder(
    const tsr_report *r, const candidate *c, const tsr_rank_blocks *blocks, int block,
    int ret_coord[TSR_AXES]) {
  const int *ranks;
  int count = tsr_rank_block_members(blocks, block, &ranks);
  for (int i = 0; i < count; i++) {
    for (int a = 0; a < TSR_AXES; a++) ret_coord[a] = tsr_parallel_coord(r->parallel, ranks[i], a);
    const tsr_program *p = r->programs[0].of_stage[ret_coord[TSR_PP]];
    if (p->tensors[c->value].segment != TSR_SEGMENT_ABSENT &&
        tsr_program_holds(p, c->value, ret_coord))
      return ranks[i];
  }
  return -1;
}

static void draw_cell(
    const tsr_report *r, const candidate *c, const tsr_device_grid *grid, int index, double x,
    double y, double scale, tsr_text *svg) {
  const tsr_device_cell *cell = &grid->cells[index];
  int coord[TSR_AXES], count = 1;
  int rank = cell->block < 0 ? -1 : find_holder(r, c, &grid->blocks, cell->block, coord);
  char class[16] = "idle cell";
  tsr_text tip = {0};
  if (rank >= 0) {
    tsr_tensor_slice slice =
        tsr_program_slice(r->programs[0].of_stage[coord[TSR_PP]], c->value, coord);
    int part = part_number(&slice, &count);
    tsr_text_add(&tip, "rank %d: ", rank);
    add_slice(&slice, &tip);
    snprintf(class, sizeof class, "%s cell", tsr_svg_class_of(part, count));
  } else if (cell->block < 0) tsr_text_add(&tip, "no rank");
  else
    tsr_text_add(
        &tip, "rank %s: nothing of it", tsr_rank_block_text(&grid->blocks, cell->block).text);
  tsr_svg_rect(
      svg, class, x + cell->x * scale, y + cell->y * scale, grid->cell_width * scale,
      grid->cell_height * scale, tip.data);
  tsr_text_free(&tip);
}

static void draw_panel(
    const tsr_report *r, const candidate *c, const tsr_device_grid *grid, double x, double y,
    double width, double scale, tsr_text *svg) {
  const tsr_value *value = &c->program->graph->values[c->value];
  const tsr_tensor *t = &c->program->tensors[c->value];
  tsr_text text = {0};
  tsr_svg_text_cut(svg, "strong", x, y, width, value->name);
  tsr_text_add(
      &text, "%s %s, %s", tsr_dtype_name(value->dtype),
      tsr_shape_text(value->ndim, value->shape).text, tsr_text_bytes(c->bytes).text);
  tsr_svg_text_cut(svg, "small", x, y + 17, width, text.data);
  text.length = 0;
  tsr_text_add(
      &text, "of a rank %s, %s bytes", tsr_shape_text(t->ndim, t->shape).text,
      tsr_text_count(tsr_tensor_bytes(t)).text);
  tsr_svg_text_cut(svg, "small", x, y + 33, width, text.data);
  text.length = 0;
  add_placement(c->program, c->value, &text);
  tsr_svg_text_cut(svg, "small soft", x, y + 49, width, text.data ? text.data : "");
  for (int i = 0; i < grid->count; i++) draw_cell(r, c, grid, i, x, y + 60, scale, svg);
  tsr_text_free(&text);
}

double tsr_shard_panels_draw(
    const tsr_report *report, const tsr_device_grid *grid, double x, double y, double width,
    tsr_text *svg) {
  candidate found[PANELS];
  int count = 0;
  found[count] = find_most(report->programs, true, NULL);
  if (found[count].value >= 0) count++;
  if (count) {
    found[count] = find_most(report->programs, true, &found[0]);
    if (found[count].value >= 0) count++;
  }
  found[count] = find_most(report->programs, false, NULL);
  if (found[count].value >= 0) count++;
  if (!count || report->parallel->ranks < 2) return y;
  double panel = (width - (PANELS - 1) * PANEL_GAP) / PANELS, scale = fmin(1, panel / grid->width);
  tsr_svg_text(svg, "strong", "start", x, y, "Parts of tensors");
  tsr_svg_textf(
      svg, "small soft", "start", x + 130, y, "one colour: the same part%s; grey: nothing of it",
      grid->blocks.size > 1 ? "; of a cell the first rank's that has one" : "");
  for (int i = 0; i < count; i++)
    draw_panel(report, &found[i], grid, x + i * (panel + PANEL_GAP), y + 26, panel, scale, svg);
  return y + 26 + 60 + grid->height * scale + 16;
}
