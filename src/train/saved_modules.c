// SPDX-License-Identifier: Apache-2.0
#include "train/saved_modules.h"
#include "base/file_read.h"
#include "checkpoint/peft.h"
#include <string.h>

static const tsr_config_name *
match_module(tsr_arena *arena, tsr_module_names *names, const char *name) {
  static const char bias[] = ".bias";
  char *module = tsr_arena_strdup(arena, name);
  if (tsr_path_ends(module, bias)) module[strlen(module) - strlen(bias)] = 0;
  const tsr_config_name *by = NULL;
  for (char *dot = module; dot; dot = strrchr(module, '.')) {
    if (dot > module) *dot = 0;
    const tsr_config_name *found = tsr_module_names_match(names, module);
    if (!by) by = found;
  }
  return by;
}

const tsr_config_name *
tsr_saved_modules_match(tsr_arena *arena, tsr_module_names *names, const tsr_param *param) {
  const char *module = tsr_adapter_module(arena, param);
  const char *peft = tsr_peft_module_name(arena, module);
  const tsr_config_name *by = tsr_module_names_match_param(names, param->name);
  const tsr_config_name *found = match_module(arena, names, module);
  const tsr_config_name *other = peft == module ? NULL : match_module(arena, names, peft);
  if (!by) by = found;
  return by ? by : other;
}

/* ---- the list ---- */

/* The module that has a tensor. */
static const char *owner_of(tsr_arena *arena, const tsr_param *p) {
  if (!p->hf_name) return p->name;
  const char *name = tsr_peft_module_name(arena, p->hf_name), *dot = strrchr(name, '.');
  return dot ? tsr_arena_strndup(arena, name, (size_t)(dot - name)) : name;
}

/* Whether a name matches the parameter, and no other that is not saved. */
static bool
is_exact(const tsr_graph *g, const tsr_param_training *training, int param, const char *name) {
  tsr_arena *scratch = tsr_arena_new();
  tsr_module_names *names;
  tsr_config_name item = {.text = name};
  bool ok = tsr_module_names_compile(
      scratch, &(tsr_config_names){&item, 1, false}, "lora_config.modules_to_save", TSR_NAMES_SAVED,
      &names, tsr_diags_new(scratch));
  ok = ok && tsr_saved_modules_match(scratch, names, &g->params[param]);
  for (int p = 0; ok && p < g->params_count; p++)
    ok = training[p].is_saved || !tsr_saved_modules_match(scratch, names, &g->params[p]);
  tsr_arena_free(scratch);
  return ok;
}

static bool is_known(const char *const *names, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* Of a.b.c: c, b.c, a.b.c. */
static const char *longer(const char *whole, const char *end) {
  if (end == whole) return NULL;
  for (end -= 2; end >= whole; end--)
    if (*end == '.') return end + 1;
  return whole;
}

const char **tsr_saved_modules_list(
    tsr_arena *arena, const tsr_graph *g, const tsr_param_training *training, int *ret_count,
    tsr_diags *diags) {
  const char **list = tsr_arena_array(arena, const char *, g->params_count + 1);
  *ret_count = 0;
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *param = &g->params[p];
    if (!training[p].is_saved || tsr_param_is_load(g, param)) continue;
    const char *owner = owner_of(arena, param), *name = longer(owner, owner + strlen(owner) + 1);
    bool known = false;
    while (name && !(known = is_known(list, *ret_count, name)) && !is_exact(g, training, p, name))
      name = longer(owner, name);
    if (known) continue;
    if (!name) {
      tsr_diag_error(
          diags, TSR_NOWHERE,
          "'%s' is trained whole without the rest of '%s', which PEFT's folders cannot have",
          param->name, owner);
      tsr_diag_hint(diags, "`export --merge` writes the model that it is a part of");
      return NULL;
    }
    list[(*ret_count)++] = name;
  }
  return list;
}
