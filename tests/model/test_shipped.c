// SPDX-License-Identifier: Apache-2.0
/* Every model file that is shipped builds, with the number of parameters that its comment promises.
 */
#include "tests/model/model_case.h"
#include <dirent.h>
#include <time.h>

static int64_t count_parameters(const tsr_graph *g) {
  int64_t total = 0;
  for (int i = 0; i < g->params_count; i++) {
    const tsr_param *p = &g->params[i];
    int64_t elements = p->padding.real;
    for (int d = 1; d < p->ndim; d++) elements *= p->shape[d];
    total += elements;
  }
  return total;
}

static int64_t promised(const char *text) {
  const char *at = strstr(text, "# parameters: ");
  return at ? atoll(at + strlen("# parameters: ")) : 0;
}

static const char *model_type(tsr_arena *arena, const char *text) {
  const char *at = strstr(text, "model_type:");
  if (!at) return strstr(text, "mlp_config") ? "mlp" : "gpt2";
  at += strlen("model_type:");
  at += strspn(at, " \"");
  return tsr_arena_strndup(arena, at, strcspn(at, "\" \n#"));
}

static void check_model(const char *file) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  const char *path = tsr_arena_printf(arena, "configs/models/%s", file);
  char *text;
  size_t length;
  const char *whole = tsr_path_join(arena, TSR_SOURCE_ROOT, path);
  if (!tsr_file_read(arena, whole, 1 << 20, TSR_NOWHERE, &text, &length, diags)) {
    CHECK_AT(false, "cannot read %s", whole);
  } else {
    const char *graph = tsr_arena_printf(arena, "configs/graphs/%s.yaml", model_type(arena, text));
    tsr_model_options options = case_options();
    options.vocab_detected = strstr(text, "vocab_size: 0") ? 65 : 0;
    options.sequence = strstr(text, "mlp_config") ? 0 : 64;
    model_case c = case_files(graph, path, &options);
    CHECK_AT(c.model && !*c.report, "%s:\n%s", path, c.report);
    if (c.model && promised(text)) {
      int64_t count = count_parameters(c.model->graph);
      CHECK_AT(count == promised(text), "%s has %lld parameters", path, (long long)count);
    }
    case_end(&c);
  }
  tsr_arena_free(arena);
}

static void check_all(void) {
  DIR *dir = opendir(TSR_SOURCE_ROOT "/configs/models");
  CHECK(dir != NULL);
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (strstr(e->d_name, ".yaml")) check_model(e->d_name);
  if (dir) closedir(dir);
}

/* 126 blocks are read and built in well under 30 ms of CPU time, which does not count what else the
 * machine does; ten times that is a mistake, not a slow machine. */
static void check_speed(void) {
  struct timespec a, b;
  tsr_model_options options = case_options();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  model_case c =
      case_files("configs/graphs/llama.yaml", "configs/models/llama-3.1-405b.yaml", &options);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
  printf("llama-3.1-405b: %.1f ms\n", ms);
  CHECK_AT(c.model != NULL, "%s", c.report);
  CHECK_AT(ms < 300, "%.1f ms", ms);
  case_end(&c);
}

static const tsr_param *find_param(const tsr_graph *g, const char *name) {
  for (int i = 0; i < g->params_count; i++)
    if (!strcmp(g->params[i].name, name)) return &g->params[i];
  return NULL;
}

static void check_gpt2(void) {
  tsr_model_options options = case_options();
  options.units.tp = 4;
  model_case c = case_files("configs/graphs/gpt2.yaml", "configs/models/gpt2-124m.yaml", &options);
  CHECK_AT(c.model != NULL, "%s", c.report);
  if (!c.model) return case_end(&c);
  const tsr_graph *g = c.model->graph;
  CHECK_INT(c.model->vocab_size, 50257);
  CHECK_INT(c.model->vocab_padded, 50304);
  CHECK_INT(c.model->sequence, 1024);
  const tsr_param *wte = find_param(g, "wte"), *wv = find_param(g, "block.11.attn.wv"),
                  *wo = find_param(g, "block.3.attn.wo"),
                  *bias = find_param(g, "block.0.mlp.fc_bias");
  CHECK(wte && wv && wo && bias);
  if (!wte || !wv || !wo || !bias) return case_end(&c);
  CHECK_INT(wte->padding.real, 50257);
  CHECK_STR(wte->hf_name, "transformer.wte.weight");
  CHECK_STR(wv->hf_name, "transformer.h.11.attn.c_attn.weight#2/3");
  CHECK(wv->hf_transposed && wv->decay && !bias->decay && !bias->hf_transposed);
  CHECK_INT(wv->placement[TSR_TP].kind, TSR_SHARD);
  CHECK_INT(wo->placement[TSR_TP].dim, 1);
  CHECK_NEAR(wo->init.b, 0.02 / sqrt(24), 1e-12);
  CHECK_INT(bias->shape[0], 3072);
  CHECK_INT(bias->placement[TSR_TP].kind, TSR_SHARD);
  CHECK(tsr_graph_find_output(g, "logits") >= 0 && g->loss >= 0);
  case_end(&c);
}

static int count_ops(const tsr_graph *g, tsr_op op) {
  int count = 0;
  for (int i = 0; i < g->nodes_count; i++) count += g->nodes[i].op == op;
  return count;
}

static void check_generation(void) {
  const char *graph = "configs/graphs/gpt2.yaml", *model = "configs/models/gpt2-124m.yaml";
  tsr_model_options options = case_options();
  model_case c = case_files(graph, model, &options);
  CHECK(c.model && count_ops(c.model->graph, TSR_OP_DROPOUT) == 25);
  case_end(&c);
  options.training = options.loss = false;
  c = case_files(graph, model, &options);
  CHECK_AT(c.model != NULL, "%s", c.report);
  if (c.model) {
    const tsr_graph *g = c.model->graph;
    CHECK_INT(count_ops(g, TSR_OP_DROPOUT), 0);
    CHECK_INT(count_ops(g, TSR_OP_CE_LOSS), 0);
    CHECK_INT(g->loss, -1);
    for (int i = 0; i < g->values_count; i++) CHECK(strcmp(g->values[i].name, "targets"));
  }
  case_end(&c);
}

int main(void) {
  check_all();
  check_speed();
  check_gpt2();
  check_generation();
  return check_done("model.shipped");
}
