// SPDX-License-Identifier: Apache-2.0
/* tt-train's own files, where they are at hand: each loads, or says which feature is missing. */
#include "helper.h"
#include <dirent.h>
#include <sys/stat.h>

static const struct {
  const char *file, *said; /* NULL: loads; else a part of what is said */
} files[] = {
    {"bert_config.yaml", ":5:1: error: unsupported feature: BERT models"},
    {"device_configs/loudbox_tp.yaml", NULL},
    {"lora_configs/default_lora.yaml", NULL},
    {"model_configs/dit_s_p2.yaml", ":1:1: error: unsupported feature: diffusion transformers"},
    {"model_configs/gpt2s_3tier__3545b84f.yaml",
     ":13:1: error: unsupported feature: an aggregator and an optimizer process"},
    {"model_configs/llama405b.yaml", NULL},
    {"model_configs/llama70b_tp32.yaml", NULL},
    {"model_configs/llama8b_attention_cp_char.yaml", NULL},
    {"model_configs/mlp_config.yaml", NULL},
    {"model_configs/moe/deepseek_16B.yaml", NULL},
    {"model_configs/moe/nano_deepseek_char.yaml", NULL},
    {"model_configs/nanogpt.yaml", NULL},
    {"model_configs/nanogpt_char.yaml", NULL},
    {"model_configs/nanollama3.yaml", NULL},
    {"model_configs/nanollama3_cp_char.yaml", NULL},
    {"model_configs/qwen3_1_7B.yaml", NULL},
    {"model_configs/smollm2_135m.yaml", NULL},
    {"model_configs/tinyllama3_loudbox_tp__3545b84f.yaml", NULL},
    {"multihost_configs/3worker_mpi.yaml",
     ":1:1: error: unsupported feature: an aggregator and an optimizer process"},
    {"multihost_configs/4worker_80block_pp_fabric.yaml", NULL},
    {"multihost_configs/5worker_32block_pp_fabric.yaml", NULL},
    {"optimizer_configs/moreh_adamw.yaml", NULL},
    {"optimizer_configs/sgd.yaml", NULL},
    {"training_configs/deepseek_16B_8chip_ep.yaml", ":9:17: error: cannot find"},
    {"training_configs/grpo_boolq_llama_1b_ddp_32dev.yaml",
     ":33:3: error: unsupported feature: reinforcement"},
    {"training_configs/grpo_boolq_qwen3_32b_fsdp.yaml",
     ":22:3: error: unsupported feature: reinforcement"},
    {"training_configs/llama70b/training_shakespeare_llama70b_tp8_fsdp4.yaml",
     ":36:17: error: cannot find"},
    {"training_configs/llama8b/training_shakespeare_llama_8b_tp4_fsdp8.yaml",
     ":19:17: error: cannot find"},
    {"training_configs/tiny_deepseek_single_sparse_ep.yaml", ":9:17: error: cannot find"},
    {"training_configs/training_cifar10_dit_s.yaml",
     ":18:1: error: unsupported feature: diffusion training"},
    {"training_configs/training_cifar10_dit_s_p2_edm.yaml",
     ":26:1: error: unsupported feature: diffusion training"},
    {"training_configs/training_gsm8k_tinyllama.yaml",
     ":20:17: error: cannot find 'model_configs/tinyllama.yaml'"},
    {"training_configs/training_shakespeare_gpt2__397d672b.yaml", NULL},
    {"training_configs/training_shakespeare_llama3_tensor_parallel.yaml", NULL},
    {"training_configs/training_shakespeare_llama70b_pp4_tp32_fabric_galaxy.yaml", NULL},
    {"training_configs/training_shakespeare_llama8b_attention_cp8_char.yaml", NULL},
    {"training_configs/training_shakespeare_nano_deepseek_char.yaml", NULL},
    {"training_configs/training_shakespeare_nanogpt__03857221.yaml", NULL},
    {"training_configs/training_shakespeare_nanogpt_char.yaml", NULL},
    {"training_configs/training_shakespeare_nanogpt_ddp_n300.yaml", NULL},
    {"training_configs/training_shakespeare_nanollama3_no_op__3545b84f.yaml", NULL},
};
static const int files_count = sizeof files / sizeof *files;

static void check_file(const char *folder, const char *name, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_config *config;
  bool ok = tsr_config_load(
      arena, tsr_arena_printf(arena, "%s/%s", folder, name), NULL, 0, &config, diags);
  const char *said = printed_diags(arena, diags);
  if (want) CHECK_AT(!ok && strstr(said, want), "%s: %s", name, said);
  else CHECK_AT(ok, "%s: %s", name, said);
  CHECK_AT(!strstr(said, "unknown key"), "%s: %s", name, said);
  tsr_arena_free(arena);
}

/* Every file there has its row. */
static void check_listed(const char *folder, const char *below) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, below);
  DIR *dir = opendir(path);
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char name[1024];
    snprintf(name, sizeof name, "%s%s%s", below, *below ? "/" : "", entry->d_name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct stat info;
    if (entry->d_name[0] == '.' || stat(path, &info)) continue;
    if (S_ISDIR(info.st_mode)) {
      check_listed(folder, name);
      continue;
    }
    bool listed = !strstr(name, ".yaml");
    for (int i = 0; i < files_count; i++) listed |= !strcmp(files[i].file, name);
    CHECK_AT(listed, "%s has no expectation here", name);
  }
  closedir(dir);
}

int main(void) {
  char folder[4096];
  const char *shared = getenv("TESSERA_SHARED");
  snprintf(folder, sizeof folder, "%s/tt/configs", shared ? shared : TSR_SOURCE_ROOT "/../shared");
  struct stat info;
  if (stat(folder, &info)) {
    printf("config.shared: skipped, there is no folder %s\n", folder);
    return 77; /* skipped, for ctest and meson */
  }
  unsetenv("TT_METAL_RUNTIME_ROOT");
  for (int i = 0; i < files_count; i++) check_file(folder, files[i].file, files[i].said);
  check_listed(folder, "");
  return check_done("config.shared");
}
