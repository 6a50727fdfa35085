// SPDX-License-Identifier: Apache-2.0
/* adapter_config.json of PEFT: LoRA, rsLoRA and DoRA. */
#ifndef TSR_CHECKPOINT_PEFT_CONFIG_H
#define TSR_CHECKPOINT_PEFT_CONFIG_H
#include "base/text.h"
#include "config/config.h"

#define TSR_PEFT_CONFIG_NAME "adapter_config.json"
#define TSR_PEFT_WEIGHTS_NAME "adapter_model.safetensors"

/* The file of a folder, as lora_config; how the base is stored is not in it, and stays. Errors name
 * the file: another kind of adapter, options that change what an adapter computes and are not
 * supported. */
bool tsr_peft_config_read(
    tsr_arena *arena, const char *folder, tsr_location location, tsr_config_lora *ret_lora,
    tsr_diags *diags);

/* A text of the file; sets the keys that the format has. */
bool tsr_peft_config_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_location location,
    tsr_config_lora *ret_lora, tsr_diags *diags);

/* What a configuration says of its adapters must be what their folder, lora.path, says; what it
 * does not say is taken from there. Dropout may differ. */
bool tsr_peft_config_take(tsr_arena *arena, tsr_config *config, tsr_diags *diags);

/* The text of the file. */
typedef struct {
  const tsr_config_lora *lora;
  const char *const *targets; /* modules, as PEFT matches names */
  int targets_count;
  const char *const *saved;
  int saved_count;
  tsr_config_numbers ranks, alphas; /* of modules that have others than lora's */
  const char *base;                 /* where the model is, or NULL */
  bool fan_in_fan_out;
  bool tells_classes, trains_scores; /* the model tells classes apart, by scores that are saved */
} tsr_peft_config;
void tsr_peft_config_print(const tsr_peft_config *config, tsr_text *text);

#endif
