// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_dump.h"
#include "base/file_ops.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "base/file_read.h"
#include "checkpoint/safetensors.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const tsr_gradient_dump *dump;
  const tsr_executable *executable;
  int *values; /* of the placed graph, in the order of the file */
  const tsr_param **params;
  tsr_safetensor *tensors;
  int count;
  int64_t most; /* numbers of the largest, with padding */
} gradients;

static const char ending[] = ".safetensors";

/* Of a step, whole or not. */
static bool is_of_step(const char *name) {
  return !strncmp(name, "step-", 5) && strstr(name, ending);
}

/* Calls for every file of gradients, until one fails. */
static bool for_each_file(
    tsr_arena *arena, const char *folder, bool (*act)(const char *path, tsr_diags *diags),
    int *ret_count, tsr_diags *diags) {
  DIR *opened = tsr_disk_open_folder(folder);
  bool ok = true;
  *ret_count = 0;
  if (!opened) return tsr_file_cannot("read the folder", folder, errno, TSR_NOWHERE, diags);
  for (const struct dirent *e; ok && (e = readdir(opened));) {
    if (!is_of_step(e->d_name)) continue;
    ++*ret_count;
    ok = !act || act(tsr_path_join(arena, folder, e->d_name), diags);
  }
  closedir(opened);
  return ok;
}

static bool remove_file(const char *path, tsr_diags *diags) {
  return tsr_disk_remove(path) || tsr_file_cannot("remove", path, errno, TSR_NOWHERE, diags);
}

/* What is in a folder that is not that of --out. */
static bool
check_others(tsr_arena *arena, const char *path, const tsr_gradient_run *run, tsr_diags *diags) {
  const char *config = tsr_path_join(arena, path, "config.yaml");
  bool results;
  if (!tsr_out_folder_has_results(arena, path, run->metrics, &results, diags)) return false;
  if (results) tsr_diag_error(diags, TSR_NOWHERE, "'%s' has the results of a run", path);
  else if (!tsr_file_exists(config) || tsr_out_folder_has_run(arena, path)) return true;
  else
    tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' is there, and no run of tessera-train has written it", config);
  tsr_diag_hint(diags, "--dump-grads names another folder");
  return false;
}

static bool
check_gradients(tsr_arena *arena, const char *path, const tsr_gradient_run *run, tsr_diags *diags) {
  int count;
  if (!for_each_file(arena, path, NULL, &count, diags)) return false;
  if (!count || run->overwrites) return true;
  if (run->resumes && tsr_out_folder_is_of(arena, path, run->config)) return true;
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' has gradients of another run", path);
  if (run->resumes) return tsr_out_folder_explain(arena, path, run->config, diags);
  tsr_diag_hint(diags, "--overwrite replaces them, or name another folder by --dump-grads");
  return false;
}

bool tsr_gradient_folder_take(
    tsr_arena *arena, const char *path, const tsr_gradient_run *run, tsr_out_folder *ret,
    tsr_diags *diags) {
  bool same = run->out->path && tsr_file_is_same(path, run->out->path), ok = true;
  if (same) *ret = (tsr_out_folder){.path = path, .lock = TSR_FOLDER_LOCK_NONE};
  else ok = tsr_out_folder_lock(arena, path, ret, diags) && check_others(arena, path, run, diags);
  if (ok && check_gradients(arena, path, run, diags)) return true;
  tsr_out_folder_close(ret);
  return false;
}

bool tsr_gradient_folder_begin(
    tsr_arena *arena, tsr_out_folder *folder, bool overwrites, const tsr_config *config,
    tsr_diags *diags) {
  int count;
  return (!overwrites || for_each_file(arena, folder->path, remove_file, &count, diags)) &&
         tsr_out_folder_begin(arena, folder, config, diags);
}

/* Outputs keep their order through the passes. */
static gradients find_gradients(
    tsr_arena *arena, const tsr_gradient_dump *dump, const tsr_compiled *c,
    const tsr_executable *e) {
  const tsr_graph *g = c->graph;
  gradients r = {.dump = dump, .executable = e};
  r.values = tsr_arena_array(arena, int, g->params_count + 1);
  r.params = tsr_arena_array(arena, const tsr_param *, g->params_count + 1);
  r.tensors = tsr_arena_array(arena, tsr_safetensor, g->params_count + 1);
  for (int p = 0; p < g->params_count; p++)
    for (int i = 0; i < g->outputs_count && g->grads[p] >= 0; i++) {
      const tsr_param *param = &g->params[p];
      bool is_gradient =
          !strncmp(g->outputs[i].name, "d.", 2) && !strcmp(g->outputs[i].name + 2, param->name);
      if (!is_gradient) continue;
      tsr_safetensor *t = &r.tensors[r.count];
      r.values[r.count++] = c->placed->outputs[i].value;
      *t = (tsr_safetensor){
          .name = param->name, .dtype = "F32", .ndim = param->ndim, .bytes = sizeof(float)};
      int64_t padded = tsr_value_elements(&c->placed->values[c->placed->outputs[i].value]);
      if (padded > r.most) r.most = padded;
      tsr_param_real_shape(param, t->shape);
      r.params[r.count - 1] = param;
      for (int d = 0; d < t->ndim; d++) t->bytes *= t->shape[d];
    }
  return r;
}

static bool write_header(const gradients *r, tsr_new_file *file, tsr_diags *diags) {
  char step[24];
  snprintf(step, sizeof step, "%lld", (long long)r->dump->step);
  const char *metadata[] = {"step", step, "recipe", r->dump->recipe};
  tsr_text text = {0};
  tsr_safetensors_header(r->tensors, r->count, metadata, 2, &text);
  bool ok = tsr_new_file_write(file, text.data, text.length, diags);
  tsr_text_free(&text);
  return ok;
}

/* Every process reads, whether or not it writes: reading is collective. */
static bool
write_tensors(const gradients *r, float *numbers, tsr_new_file *file, bool ok, tsr_diags *diags) {
  for (int i = 0; i < r->count; i++) {
    const tsr_safetensor *t = &r->tensors[i];
    const tsr_param *p = r->params[i];
    tsr_executable_read(r->executable, r->values[i], numbers);
    tsr_padding_remove(&p->padding, p->ndim, p->shape, numbers);
    for (int64_t k = 0; r->dump->factor != 1 && k < t->bytes / (int64_t)sizeof(float); k++)
      numbers[k] = (float)(r->dump->factor * (double)numbers[k]);
    if (r->dump->writes && ok) ok = tsr_new_file_write(file, numbers, (size_t)t->bytes, diags);
  }
  return ok;
}

/* The file is there when it is whole, or not at all. */
static bool write_file(const gradients *r, const char *path, float *numbers, tsr_diags *diags) {
  tsr_new_file file = {.fd = -1};
  bool writes = r->dump->writes;
  bool ok = !writes || (tsr_new_file_open(path, &file, diags) && write_header(r, &file, diags));
  ok = write_tensors(r, numbers, &file, ok, diags);
  if (writes && ok) return tsr_new_file_commit(&file, diags);
  if (writes) tsr_new_file_drop(&file);
  return ok;
}

bool tsr_gradient_dump_write(
    const tsr_gradient_dump *dump, const tsr_compiled *training, tsr_executable *executable,
    tsr_diags *diags) {
  tsr_arena *arena = tsr_arena_new();
  gradients r = find_gradients(arena, dump, training, executable);
  snprintf(
      dump->path, strlen(dump->folder) + TSR_GRADIENT_PATH_BYTES, "%s/step-%08lld%s", dump->folder,
      (long long)dump->step, ending);
  float *numbers = tsr_memory_try(sizeof *numbers * (size_t)(r.most + 1));
  bool ok = !tsr_executable_agree(executable, !numbers);
  if (ok) ok = write_file(&r, dump->path, numbers, diags);
  else if (!numbers)
    tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for the gradients of step %lld",
        tsr_text_bytes(4 * r.most).text, (long long)dump->step);
  free(numbers);
  tsr_arena_free(arena);
  return ok;
}
