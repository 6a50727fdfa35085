// SPDX-License-Identifier: Apache-2.0
#include "pictures/device_grid.h"
#include "pictures/pictures.h"
#include "pictures/shard_panels.h"
#include "pictures/svg.h"
#include "plan/path.h"
#include <string.h>

enum { WIDTH = 1040, LEFT = 24 };

typedef struct {
  tsr_arena *arena;
  const tsr_report *report;
  tsr_device_grid grid;
  int colour_axis; /* cells are coloured by the coordinate on it; -1: there is no axis */
  tsr_text *svg;
  double y;
} page;

/* ---- the head ---- */

static void draw_head(page *p) {
  const tsr_report *r = p->report;
  const tsr_mesh *mesh = r->parallel->mesh;
  tsr_text line = {0};
  tsr_text_add(&line, "Mesh: ");
  if (r->parallel->ndim) tsr_parallel_topology(r->parallel, &line);
  else tsr_text_add(&line, "one rank");
  tsr_svg_text_cut(p->svg, "head", LEFT, 34, WIDTH - 48, line.data);
  line.length = 0;
  tsr_text_add(
      &line, "%s rank%s", tsr_text_count(r->parallel->ranks).text,
      r->parallel->ranks == 1 ? "" : "s");
  if (mesh && mesh->file) {
    tsr_text_add(
        &line, " on %s: %d mesh%s of %s %s devices, %s host%s", mesh->shape.name, mesh->meshes,
        mesh->meshes == 1 ? "" : "es",
        tsr_mesh_dims_text(p->arena, mesh->shape.dims, mesh->shape.ndim),
        tsr_mesh_arch_name(mesh->shape.arch), tsr_text_count(mesh->hosts).text,
        mesh->hosts == 1 ? "" : "s");
    if (mesh->connections_count)
      tsr_text_add(
          &line, ", %d connection%s between meshes", mesh->connections_count,
          mesh->connections_count == 1 ? "" : "s");
  } else tsr_text_add(&line, " on machine %s, without a descriptor", r->machine->name);
  tsr_text_add(&line, ". %s", tsr_rank_blocks_note(&p->grid.blocks).text);
  tsr_svg_text_cut(p->svg, "soft", LEFT, 54, WIDTH - 48, line.data);
  tsr_text_free(&line);
  p->y = 84;
}

/* ---- axes ---- */

/* Of the ranks of the stage that communicates most. */
static double sent_over(const tsr_report *r, int axis) {
  const tsr_estimate_stage *stages = r->estimate->stages, *most = &stages[0];
  double sent = 0;
  for (int s = 1; s < r->programs->pipeline->stages; s++)
    if (stages[s].communication > most->communication) most = &stages[s];
  for (int i = 0; i < most->transfers_count; i++)
    if (most->transfers[i].axis == axis) sent += most->transfers[i].sent;
  return sent;
}

static void draw_axes(page *p) {
  static const double at[] = {LEFT, LEFT + 60, LEFT + 130, LEFT + 330, LEFT + 470};
  static const char *const names[] = {
      "axis", "size", "neighbours", "farthest link", "sent by a rank in a step"};
  const tsr_parallel *parallel = p->report->parallel;
  if (!parallel->ndim) return;
  for (int i = 0; i < 5; i++) tsr_svg_text(p->svg, "small soft", "start", at[i], p->y, names[i]);
  for (int i = 0; i < parallel->ndim; i++) {
    int axis = parallel->axis_of_dim[i];
    int64_t stride = parallel->stride[axis] ? parallel->stride[axis] : 1;
    const char *path = tsr_path_farthest(
        p->report->machine, (tsr_machine_group){parallel->size[axis], stride, parallel->ranks});
    p->y += 20;
    tsr_svg_text(p->svg, "strong", "start", at[0], p->y, tsr_axis_name(axis));
    tsr_svg_textf(p->svg, "", "start", at[1], p->y, "%d", parallel->size[axis]);
    tsr_svg_textf(
        p->svg, "", "start", at[2], p->y, "%lld rank%s apart", (long long)stride,
        stride == 1 ? "" : "s");
    tsr_svg_text(p->svg, "", "start", at[3], p->y, *path ? path : "none");
    tsr_svg_text(
        p->svg, "", "start", at[4], p->y, tsr_text_bytes((int64_t)sent_over(p->report, axis)).text);
  }
  p->y += 26;
}

/* ---- devices ---- */

static void draw_link(const page *p, int from, int to) {
  const tsr_device_cell *a = &p->grid.cells[from], *b = &p->grid.cells[to];
  double half = p->grid.cell_width / 2, tall = p->grid.cell_height / 2;
  tsr_svg_line(
      p->svg, "link", LEFT + a->x + half, p->y + a->y + tall, LEFT + b->x + half,
      p->y + b->y + tall);
}

/* The links between neighbours that are drawn beside each other. The two ends of a ring have a stub
 * each. */
static void draw_links(const page *p) {
  const tsr_device_grid *g = &p->grid;
  const tsr_mesh *mesh = p->report->parallel->mesh;
  if (!g->is_topology || mesh->shape.channels.count < 1) return;
  for (int i = 0; i < g->count; i++)
    for (int d = 0; d < mesh->shape.ndim; d++) {
      int next = tsr_device_grid_neighbour(g, &mesh->shape, i, d);
      bool is_drawn = d >= mesh->shape.ndim - 2; /* in one panel */
      if (next >= 0 && is_drawn) draw_link(p, i, next);
      if (next >= 0 || !is_drawn || mesh->shape.dim_types[d] != TSR_MESH_RING ||
          mesh->shape.dims[d] < 3)
        continue;
      const tsr_device_cell *last = &g->cells[i];
      bool across = d == mesh->shape.ndim - 1;
      int first = tsr_device_grid_first(&mesh->shape, i, d);
      const tsr_device_cell *start = &g->cells[first];
      double x = LEFT + last->x + (across ? g->cell_width : g->cell_width / 2);
      double y = p->y + last->y + (across ? g->cell_height / 2 : g->cell_height);
      tsr_svg_line(p->svg, "link", x, y, x + (across ? 7 : 0), y + (across ? 0 : 7));
      x = LEFT + start->x + (across ? 0 : g->cell_width / 2);
      y = p->y + start->y + (across ? g->cell_height / 2 : 0);
      tsr_svg_line(p->svg, "link", x, y, x - (across ? 7 : 0), y - (across ? 0 : 7));
    }
}

/* Where a cell is narrow, the first rank, and coordinates without the axes' names. */
static bool has_names(const page *p) {
  enum { AXIS_PIXELS = 40, RANGE_PIXELS = 50 };
  int each = p->grid.blocks.size > 1 ? RANGE_PIXELS : AXIS_PIXELS;
  return p->grid.cell_width >= each * p->report->parallel->ndim;
}

static void
draw_label(const page *p, const tsr_device_cell *c, tsr_short_text ranks, const char *class) {
  const tsr_device_grid *g = &p->grid;
  double x = LEFT + c->x + 4, y = p->y + c->y + 13;
  tsr_short_text coords =
      tsr_rank_block_coords(p->arena, &g->blocks, p->report->parallel, c->block, has_names(p));
  if (!has_names(p))
    snprintf(ranks.text, sizeof ranks.text, "%d", g->blocks.ranks[c->block * g->blocks.size]);
  tsr_svg_text_cut(p->svg, class, x, y, g->cell_width - 4, ranks.text);
  if (g->cell_height >= 30 && *coords.text)
    tsr_svg_text_cut(p->svg, class, x, y + 14, g->cell_width - 4, coords.text);
}

static void draw_device(const page *p, int index) {
  const tsr_device_grid *g = &p->grid;
  const tsr_device_cell *c = &g->cells[index];
  const tsr_parallel *parallel = p->report->parallel;
  double x = LEFT + c->x, y = p->y + c->y;
  tsr_text tip = {0};
  if (c->block < 0) {
    tsr_text_add(&tip, "device %d: no rank", index);
    tsr_svg_rect(p->svg, "idle cell", x, y, g->cell_width, g->cell_height, tip.data);
    tsr_text_free(&tip);
    return;
  }
  tsr_short_text ranks = tsr_rank_block_text(&g->blocks, c->block);
  tsr_short_text coords = tsr_rank_block_coords(p->arena, &g->blocks, parallel, c->block, true);
  int first = g->blocks.ranks[c->block * g->blocks.size];
  if (g->blocks.size == 1) tsr_text_add(&tip, "device %d: ", index);
  tsr_text_add(&tip, "rank%s %s", g->blocks.size == 1 ? "" : "s", ranks.text);
  if (*coords.text) tsr_text_add(&tip, ", %s", coords.text);
  if (c->host >= 0) tsr_text_add(&tip, ", host %d", c->host);
  char class[16];
  int axis = p->colour_axis, shade = axis < 0 ? 0 : tsr_parallel_coord(parallel, first, axis);
  int shades = axis < 0 ? 1 : parallel->size[axis];
  const char *text_class = tsr_svg_text_class_of(shade, shades);
  snprintf(class, sizeof class, "%s cell", tsr_svg_class_of(shade, shades));
  tsr_svg_rect(p->svg, class, x, y, g->cell_width, g->cell_height, tip.data);
  if (g->cell_width >= 30) draw_label(p, c, ranks, text_class);
  tsr_text_free(&tip);
}

static void draw_hosts(const page *p) {
  const tsr_device_grid *g = &p->grid;
  for (int h = 0; h < g->frames_count; h++) {
    const tsr_device_frame *f = &g->frames[h];
    char tip[48];
    snprintf(tip, sizeof tip, "%s %d", f->is_mesh ? "mesh" : "host", f->number);
    tsr_svg_rect(p->svg, "panel frame", LEFT + f->x, p->y + f->y, f->width, f->height, tip);
    tsr_svg_text(p->svg, "small soft", "start", LEFT + f->x + 4, p->y + f->y + 12, tip);
  }
}

static void draw_devices(page *p) {
  p->y += 8;
  tsr_svg_text(p->svg, "strong", "start", LEFT, p->y, "Ranks and their coordinates");
  tsr_text note = {0};
  if (p->colour_axis >= 0) tsr_text_add(&note, "colour: %s. ", tsr_axis_name(p->colour_axis));
  if (!has_names(p) && p->report->parallel->ndim) {
    tsr_text_add(&note, "In a cell: %srank; ", p->grid.blocks.size > 1 ? "the first " : "");
    for (int i = 0; i < p->report->parallel->ndim; i++)
      tsr_text_add(
          &note, "%s%s", i ? ", " : "", tsr_axis_name(p->report->parallel->axis_of_dim[i]));
    if (p->grid.blocks.size > 1) tsr_text_add(&note, " (:, all)");
  }
  if (note.data) tsr_svg_text(p->svg, "small soft", "start", LEFT + 220, p->y, note.data);
  tsr_text_free(&note);
  if (p->grid.idle)
    tsr_svg_textf(
        p->svg, "small soft", "start", LEFT + 560, p->y, "%s devices have no rank",
        tsr_text_count(p->grid.idle).text);
  p->y += 16;
  draw_hosts(p);
  draw_links(p);
  for (int i = 0; i < p->grid.count; i++) draw_device(p, i);
  p->y += p->grid.height + 30;
}

/* Whether all ranks of each block have one coordinate. */
static bool is_one_a_block(const tsr_rank_blocks *b, const tsr_parallel *p, int axis) {
  for (int i = 0; i < p->ranks; i++) {
    int first = b->ranks[b->of_rank[i] * b->size];
    if (tsr_parallel_coord(p, i, axis) != tsr_parallel_coord(p, first, axis)) return false;
  }
  return true;
}

static int choose_colour(const tsr_rank_blocks *b, const tsr_parallel *p) {
  if (p->size[TSR_PP] > 1 && is_one_a_block(b, p, TSR_PP)) return TSR_PP;
  for (int i = 0; i < p->ndim; i++) {
    int axis = p->axis_of_dim[i];
    if (p->size[axis] > 1 && is_one_a_block(b, p, axis)) return axis;
  }
  return -1;
}

void tsr_picture_mesh(tsr_arena *arena, const tsr_report *report, tsr_text *svg) {
  tsr_text body = {0}, about = {0};
  page p = {.arena = arena, .report = report, .svg = &body};
  tsr_device_grid_make(arena, report, WIDTH - 2 * LEFT, &p.grid);
  p.colour_axis = choose_colour(&p.grid.blocks, report->parallel);
  draw_head(&p);
  draw_axes(&p);
  draw_devices(&p);
  p.y = tsr_shard_panels_draw(report, &p.grid, LEFT, p.y, WIDTH - 2 * LEFT, &body);
  tsr_text_add(&about, "%d ranks", report->parallel->ranks);
  for (int i = 0; i < report->parallel->ndim; i++) {
    int axis = report->parallel->axis_of_dim[i];
    tsr_text_add(&about, ", %s %d", tsr_axis_name(axis), report->parallel->size[axis]);
  }
  tsr_svg_begin(svg, WIDTH, p.y + 8, "Mesh and placement", about.data);
  tsr_text_add_bytes(svg, body.data, body.length);
  tsr_svg_end(svg);
  tsr_text_free(&body);
  tsr_text_free(&about);
}
