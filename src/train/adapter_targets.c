// SPDX-License-Identifier: Apache-2.0
#include "train/adapter_targets.h"
#include "train/module_names.h"
#include "train/saved_modules.h"
#include <math.h>
#include <string.h>

/* What the nodes of the graph do with a parameter. */
typedef struct {
  bool is_linear; /* a weight of linear layers, which can have adapters */
  bool is_embedding, is_experts, is_head, is_bias, is_counts;
  bool is_read_otherwise; /* by more than linear layers as their weight */
  int layer;              /* of a bias of a linear layer: the parameter of its weight; else -1 */
} use;

typedef struct {
  const tsr_config_numbers *numbers;
  tsr_config_name *items; /* per number */
  tsr_module_names *names;
} patterns;

typedef struct {
  tsr_arena *arena;
  const tsr_config_lora *lora;
  const tsr_graph *g;
  use *uses;                    /* per parameter */
  tsr_param_training *training; /* per parameter */
  tsr_module_names *targets, *excluded, *saved;
  patterns ranks, alphas;
  bool *refused; /* per item of target_modules */
  tsr_diags *diags;
} chooser;

static bool is_tied(const use *u) { return u->is_embedding && u->is_linear; }

static use *use_of(const chooser *c, const tsr_node *n, int input) {
  if (input < 0 || input >= n->inputs_count) return NULL;
  const tsr_value *v = &c->g->values[n->inputs[input]];
  return v->kind == TSR_VALUE_PARAM ? &c->uses[v->param] : NULL;
}

/* Whether a value is the model's logits. */
static bool is_logits(const chooser *c, int value) {
  if (tsr_graph_find_output(c->g, "logits") == value) return true;
  for (int i = 0; i < c->g->nodes_count; i++)
    if (c->g->nodes[i].op == TSR_OP_CE_STATS && c->g->nodes[i].inputs[0] == value) return true;
  return false;
}

/* The parameter of the linear layer whose result a value is; -1: of none. */
static int layer_of(const tsr_graph *g, int value) {
  int node = g->values[value].node;
  if (node < 0 || !tsr_adapter_can(g, &g->nodes[node])) return -1;
  return g->values[g->nodes[node].inputs[1]].param;
}

static void note_linear(const chooser *c, const tsr_node *n) {
  use *weight = use_of(c, n, 1);
  if (!weight) return;
  weight->is_linear = true;
  weight->is_head |= is_logits(c, n->outputs[0]);
}

/* A linear layer with a bias is two nodes, so the logits are the second one's result. */
static void note_bias(const chooser *c, const tsr_node *n) {
  use *bias = use_of(c, n, 1);
  int layer = layer_of(c->g, n->inputs[0]);
  if (layer >= 0 && is_logits(c, n->outputs[0])) c->uses[layer].is_head = true;
  if (!bias || layer < 0) return;
  bias->is_bias = true;
  bias->layer = layer;
}

static void note(const chooser *c, const tsr_node *n) {
  use *u = NULL;
  for (int i = 0; i < n->inputs_count; i++)
    if ((n->op != TSR_OP_LINEAR || i != 1) && (u = use_of(c, n, i))) u->is_read_otherwise = true;
  if (n->op == TSR_OP_LINEAR) note_linear(c, n);
  if (n->op == TSR_OP_ADD) note_bias(c, n);
  if (n->op == TSR_OP_LAYERNORM && (u = use_of(c, n, 2))) u->is_bias = true;
  if (n->op == TSR_OP_EXPERT_ADD && (u = use_of(c, n, 1))) u->is_bias = true;
  if (n->op == TSR_OP_EMBEDDING && (u = use_of(c, n, 1))) u->is_embedding = true;
  if (n->op == TSR_OP_EXPERT_LINEAR && (u = use_of(c, n, 1))) u->is_experts = true;
  if (n->op == TSR_OP_BALANCE_LOSS && (u = use_of(c, n, tsr_node_updated_input(n))))
    u->is_counts = true;
}

static const char *module_of(const chooser *c, int param) {
  return tsr_adapter_module(c->arena, &c->g->params[param]);
}

/* The item that matches a parameter's module, by Hugging Face's name or the graph's; or NULL. */
static const tsr_config_name *names_param(const chooser *c, tsr_module_names *names, int param) {
  const tsr_config_name *theirs = tsr_module_names_match(names, module_of(c, param));
  const tsr_config_name *ours = tsr_module_names_match_param(names, c->g->params[param].name);
  return theirs ? theirs : ours;
}

/* ---- linear layers ---- */

static bool has_default_targets(const tsr_config_lora *lora) {
  const tsr_config_names *n = &lora->target_modules;
  return !n->count || (n->is_one && !strcmp(n->items[0].text, "all-linear"));
}

static tsr_location place_of(const tsr_config_names *names) {
  return names->count ? names->items[0].location : TSR_NOWHERE;
}

/* A module that is named and cannot have adapters; the first one that an item names. */
static bool refuse(const chooser *c, int param, const tsr_config_name *by) {
  const use *u = &c->uses[param];
  const char *module = module_of(c, param);
  tsr_location location = by->location;
  bool *refused = &c->refused[by - c->lora->target_modules.items];
  if (*refused) return false;
  *refused = true;
  if (u->is_experts)
    tsr_diag_error(
        c->diags, location, "'%s' is weights of experts, which cannot have adapters", module);
  else if (is_tied(u))
    tsr_diag_error(
        c->diags, location,
        "'%s' is the output layer's weight and the embedding's, and cannot have adapters", module);
  else if (u->is_embedding)
    tsr_diag_error(c->diags, location, "'%s' is an embedding, which cannot have adapters", module);
  else tsr_diag_error(c->diags, location, "'%s' is no linear layer that can have adapters", module);
  tsr_diag_hint(c->diags, "exclude_modules leaves modules out of target_modules");
  return false;
}

/* The number of the first item that the module matches. */
static double number_of(const chooser *c, const patterns *p, int param, double otherwise) {
  const tsr_config_name *by = names_param(c, p->names, param);
  return by ? p->numbers->items[by - p->items].value : otherwise;
}

/* The new output of a model of classes, which is trained whole, as by PEFT's SEQ_CLS, also where it
 * is one of target_modules. A folder of adapters says itself whether it is saved. */
static bool is_new_output(const chooser *c, int param) {
  return c->g->params[param].replaces && !*c->lora->path;
}

static bool choose_target(const chooser *c, int param) {
  const use *u = &c->uses[param];
  bool can = u->is_linear && !u->is_embedding, wanted = can && !u->is_head;
  const tsr_config_name *by = NULL;
  if (!has_default_targets(c->lora))
    wanted = !u->is_bias && (by = names_param(c, c->targets, param));
  bool excluded = !u->is_bias && names_param(c, c->excluded, param);
  if (!wanted || excluded || is_new_output(c, param)) return true;
  if (!can) return refuse(c, param, by);
  const tsr_config_lora *lora = c->lora;
  double rank = number_of(c, &c->ranks, param, (double)lora->r);
  double alpha = number_of(c, &c->alphas, param, lora->alpha);
  c->training[param].rank = (int64_t)rank;
  c->training[param].alpha = alpha;
  c->training[param].scale = alpha / (lora->use_rslora ? sqrt(rank) : rank);
  return true;
}

/* Parts of one tensor of Hugging Face's have one A. */
static bool check_parts(const chooser *c, int param) {
  const tsr_param *p = &c->g->params[param];
  const char *module = module_of(c, param);
  if (!c->training[param].rank || !p->hf_name || !strchr(p->hf_name, '#')) return true;
  for (int q = 0; q < c->g->params_count; q++) {
    const tsr_param *other = &c->g->params[q];
    if (c->uses[q].is_bias || !other->hf_name || strcmp(module_of(c, q), module)) continue;
    if (!c->training[q].rank)
      return tsr_diag_error(
          c->diags, place_of(&c->lora->target_modules),
          "'%s' and '%s' are parts of '%s', which has adapters as a whole", p->name, other->name,
          module);
    const tsr_param_training *t = &c->training[param], *o = &c->training[q];
    bool same = other->shape[1] == p->shape[1] && o->rank == t->rank && o->alpha == t->alpha;
    for (int a = 0; a < TSR_AXES; a++) same &= p->placement[a].dim == other->placement[a].dim;
    if (!same)
      return tsr_diag_error(
          c->diags, other->location,
          "'%s' and '%s' are parts of '%s', and differ in shape, placement, rank or alpha: they "
          "cannot share an adapter",
          p->name, other->name, module);
  }
  return true;
}

/* ---- what is trained whole ---- */

static bool trains_bias(const chooser *c, int param) {
  const use *u = &c->uses[param];
  if (!u->is_bias || c->lora->bias == TSR_LORA_BIAS_NONE) return false;
  return c->lora->bias == TSR_LORA_BIAS_ALL || (u->layer >= 0 && c->training[u->layer].rank);
}

/* PEFT trains a copy of one of the two layers; here both have one weight. */
static bool refuse_saved(const chooser *c, int param, const tsr_config_name *saved) {
  const char *module = module_of(c, param);
  if (is_tied(&c->uses[param])) {
    tsr_diag_error(
        c->diags, saved->location,
        "'%s' is the output layer's weight and the embedding's, and cannot be in modules_to_save",
        module);
    tsr_diag_hint(c->diags, "PEFT trains a copy of one of the two and leaves the other as it is");
    return false;
  }
  if (!c->training[param].rank) return true;
  return tsr_diag_error(
      c->diags, saved->location, "'%s' is in modules_to_save, and has adapters too", module);
}

static bool choose_trained(const chooser *c, int param) {
  const tsr_config_name *saved = tsr_saved_modules_match(c->arena, c->saved, &c->g->params[param]);
  const use *u = &c->uses[param];
  bool whole = saved || is_new_output(c, param);
  c->training[param].is_saved = whole;
  c->training[param].is_frozen = !whole && !trains_bias(c, param) && !c->uses[param].is_counts;
  c->training[param].is_nf4 = c->lora->base == TSR_LORA_BASE_NF4 && u->is_linear && !u->is_head &&
                              !u->is_read_otherwise && c->training[param].is_frozen;
  return !saved || refuse_saved(c, param, saved);
}

/* ---- names ---- */

/* The last parts of modules' names, of linear layers or of all. */
static int list_names(const chooser *c, bool linear, const char **names) {
  int count = 0;
  for (int p = 0; p < c->g->params_count; p++) {
    const use *u = &c->uses[p];
    if (u->is_bias || (linear && (!u->is_linear || u->is_embedding))) continue;
    const char *module = module_of(c, p), *dot = strrchr(module, '.');
    const char *name = dot ? dot + 1 : module;
    bool known = false;
    for (int i = 0; i < count; i++) known |= !strcmp(names[i], name);
    if (!known) names[count++] = name;
  }
  return count;
}

static const char *find_tied(const chooser *c) {
  for (int p = 0; p < c->g->params_count; p++)
    if (is_tied(&c->uses[p])) return module_of(c, p);
  return NULL;
}

static bool check_names(const chooser *c) {
  const char **names = tsr_arena_array(c->arena, const char *, c->g->params_count + 1);
  int linear = list_names(c, true, names);
  bool ok = true;
  if (!has_default_targets(c->lora))
    ok &= tsr_module_names_check_used(c->targets, names, linear, find_tied(c), c->diags);
  tsr_module_names *const lists[] = {c->excluded, c->ranks.names, c->alphas.names};
  int count = *c->lora->path ? 0 : 3; /* a folder may have patterns of no module, as in PEFT */
  for (int i = 0; i < count; i++)
    ok &= tsr_module_names_check_used(lists[i], names, linear, find_tied(c), c->diags);
  int all = list_names(c, false, names);
  if (*c->lora->path) return ok; /* PEFT's own lists of SEQ_CLS have names of no module */
  return tsr_module_names_check_used(c->saved, names, all, find_tied(c), c->diags) && ok;
}

/* A regular expression, too, matches the end of a name behind a dot. */
static bool
compile_patterns(chooser *c, const tsr_config_numbers *numbers, const char *key, patterns *ret) {
  tsr_config_name *items = tsr_arena_array(c->arena, tsr_config_name, numbers->count + 1);
  for (int i = 0; i < numbers->count; i++) items[i] = numbers->items[i].name;
  *ret = (patterns){numbers, items, NULL};
  tsr_config_names names = {.items = items, .count = numbers->count};
  return tsr_module_names_compile(
      c->arena, &names, key, TSR_NAMES_OF_NUMBERS, &ret->names, c->diags);
}

static bool compile_names(chooser *c) {
  const tsr_config_lora *l = c->lora;
  static const tsr_config_names none = {0};
  const tsr_config_names *targets = has_default_targets(l) ? &none : &l->target_modules;
  bool ok = tsr_module_names_compile(
      c->arena, targets, "lora_config.target_modules", TSR_NAMES_TARGETS, &c->targets, c->diags);
  ok &= tsr_module_names_compile(
      c->arena, &l->exclude_modules, "lora_config.exclude_modules", TSR_NAMES_TARGETS, &c->excluded,
      c->diags);
  ok &= tsr_module_names_compile(
      c->arena, &l->modules_to_save, "lora_config.modules_to_save", TSR_NAMES_SAVED, &c->saved,
      c->diags);
  ok &= compile_patterns(c, &l->rank_pattern, "lora_config.rank_pattern", &c->ranks);
  ok &= compile_patterns(c, &l->alpha_pattern, "lora_config.alpha_pattern", &c->alphas);
  return ok;
}

static bool check_any(const chooser *c, tsr_location location) {
  for (int p = 0; p < c->g->params_count; p++)
    if (c->training[p].rank) return true;
  tsr_diag_error(c->diags, location, "the model has no linear layer for adapters");
  for (int p = 0; p < c->g->params_count; p++)
    if (is_new_output(c, p))
      tsr_diag_hint(c->diags, "'%s' is trained whole, without adapters", module_of(c, p));
  return false;
}

bool tsr_adapter_targets(
    tsr_arena *arena, const tsr_config *config, const tsr_graph *g, tsr_adapters *ret,
    tsr_diags *diags) {
  chooser c = {.arena = arena, .lora = &config->lora, .g = g, .diags = diags};
  c.uses = tsr_arena_array(arena, use, g->params_count + 1);
  c.training = tsr_arena_array(arena, tsr_param_training, g->params_count + 1);
  c.refused = tsr_arena_array(arena, bool, config->lora.target_modules.count + 1);
  for (int p = 0; p < g->params_count; p++) c.uses[p].layer = -1;
  for (int i = 0; i < g->nodes_count; i++) note(&c, &g->nodes[i]);
  if (!compile_names(&c)) return false;
  bool ok = true;
  for (int p = 0; p < g->params_count; p++) ok &= choose_target(&c, p);
  for (int p = 0; p < g->params_count && ok; p++) ok &= check_parts(&c, p);
  for (int p = 0; p < g->params_count; p++) ok &= choose_trained(&c, p);
  ok &= check_names(&c);
  *ret = (tsr_adapters){.params = c.training, .has_magnitudes = config->lora.use_dora};
  return ok && check_any(&c, tsr_config_location(config, "lora_config"));
}
