// SPDX-License-Identifier: Apache-2.0
#include "plan/stage_layers.h"
#include <stdlib.h>
#include <string.h>

/* A statement of the graph file: "pos", or a repetition of a block: "block.3". */
typedef struct {
  const char *name;
  int length; /* bytes of it that are the block's name; 0: no repetition */
  int number;
} layer;

/* "block.3" of "block.3.attn.q"; "q" of "q.product". */
static layer layer_of(tsr_arena *arena, const char *node) {
  size_t word = strcspn(node, ".");
  char *end;
  long number = node[word] ? strtol(node + word + 1, &end, 10) : -1;
  bool repeats = node[word] && end != node + word + 1 && (*end == '.' || !*end);
  if (!repeats) return (layer){tsr_arena_strndup(arena, node, word), 0, 0};
  return (layer){tsr_arena_strndup(arena, node, (size_t)(end - node)), (int)word, (int)number};
}

static bool follows(const layer *before, const layer *l) {
  return l->length && l->length == before->length && l->number == before->number + 1 &&
         !strncmp(l->name, before->name, (size_t)l->length);
}

static void add_range(const layer *first, const layer *last, bool begins, tsr_text *text) {
  tsr_text_add(text, "%s%s", begins ? "" : ", ", first->name);
  if (first->number != last->number) tsr_text_add(text, " to %s", last->name);
}

static void print_stage(const tsr_graph *g, int stage, tsr_text *text) {
  tsr_arena *arena = tsr_arena_new();
  layer first = {""}, last = {""};
  bool begins = true;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->section != TSR_FORWARD || n->stage != stage) continue;
    layer l = layer_of(arena, n->name);
    if (!strcmp(l.name, last.name)) continue;
    if (!follows(&last, &l)) {
      if (*last.name) add_range(&first, &last, begins, text), begins = false;
      first = l;
    }
    last = l;
  }
  if (*last.name) add_range(&first, &last, begins, text);
  tsr_arena_free(arena);
}

enum { SHOWN_MAX = 16 };

void tsr_stage_layers_print(const tsr_config *config, const tsr_graph *g, tsr_text *text) {
  int stages = 0;
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].section <= TSR_FORWARD && g->nodes[i].stage >= stages)
      stages = g->nodes[i].stage + 1;
  if (stages < 2) return;
  tsr_text_add(text, "layers:\n");
  for (int s = 0; s < stages; s++) {
    if (stages > SHOWN_MAX && s == SHOWN_MAX - 1) {
      tsr_text_add(text, "  …\n");
      s = stages - 1;
    }
    const char *name = s < config->pipeline.stages_count ? config->pipeline.stages[s].name : "";
    tsr_text_add(text, "  stage %d%s%s: ", s, *name ? ", " : "", name);
    print_stage(g, s, text);
    tsr_text_add(text, "\n");
  }
}
