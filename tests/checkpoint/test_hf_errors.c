// SPDX-License-Identifier: Apache-2.0
/* Folders that are not as they should be: exact texts, and nothing is left behind. What old files
 * have beside the weights is left out without a word. */
#include "base/file_read.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/folder_writer.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static const char graphs[] = TSR_SOURCE_ROOT "/configs/graphs";
static const char llama[] = TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_llama";
static const char mixtral[] = TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_mixtral";
static const char deepseek[] = TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_deepseek_v3_moe";
static tsr_arena *arena;
static tsr_diags *diags;

static void shell(const char *command) {
  int status = system(command);
  CHECK_AT(status == 0, "%s", command);
}

/* ---- folders that are changed ---- */

typedef struct {
  const char *name, *as; /* as NULL: left out; name NULL: a new one, of zeros */
  const char *dtype;     /* NULL: as it is */
  int ndim;              /* 0: as it is */
  int64_t shape[2];
  const char *copy; /* of a new one: whose bytes it has */
} change;

static void
apply(const tsr_hf_folder *from, const change *c, tsr_safetensor *t, const char **data) {
  if (c->as) t->name = c->as;
  if (c->dtype) t->dtype = c->dtype;
  if (c->ndim) t->ndim = c->ndim;
  if (c->ndim) memcpy(t->shape, c->shape, sizeof c->shape);
  if (c->name) return;
  const tsr_hf_tensor *copy = c->copy ? tsr_hf_folder_find(from, c->copy) : NULL;
  t->bytes = tsr_safetensors_dtype_bytes(t->dtype);
  for (int d = 0; d < t->ndim; d++) t->bytes *= t->shape[d];
  *data = copy ? copy->file->map + copy->tensor->offset : tsr_arena_alloc(arena, (size_t)t->bytes);
}

/* The folder "in": that of a model in one file, with these changes; every name without its first
 * `strip` bytes. */
static void make_folder_of(const char *model, const change *changes, int count, const char *strip) {
  tsr_hf_folder from;
  CHECK(tsr_hf_folder_open(arena, model, &from, diags));
  tsr_safetensor *list = tsr_arena_array(arena, tsr_safetensor, from.tensors_count + count);
  const char **data = tsr_arena_array(arena, const char *, from.tensors_count + count);
  int n = 0;
  for (int i = 0; i < from.tensors_count; i++) {
    bool left_out = false;
    list[n] = *from.tensors[i].tensor;
    data[n] = from.tensors[i].file->map + list[n].offset;
    for (int k = 0; k < count; k++)
      if (changes[k].name && !strcmp(changes[k].name, list[n].name)) {
        left_out = !changes[k].as;
        apply(&from, &changes[k], &list[n], &data[n]);
      }
    size_t length = strlen(strip);
    if (!strncmp(list[n].name, strip, length)) list[n].name += length;
    n += !left_out;
  }
  for (int k = 0; k < count; k++)
    if (!changes[k].name) apply(&from, &changes[k], &list[n], &data[n]), n++;
  tsr_text text = {0};
  tsr_safetensors_header(list, n, NULL, 0, &text);
  for (int i = 0; i < n; i++) tsr_text_add_bytes(&text, data[i], (size_t)list[i].bytes);
  shell("rm -rf in && mkdir in");
  shell(tsr_arena_printf(arena, "cp %s/config.json in/", model));
  scratch_write("in/model.safetensors", text.data, text.length);
  tsr_text_free(&text);
  tsr_hf_folder_close(&from);
}

static void make_folder(const change *changes, int count, const char *strip) {
  make_folder_of(llama, changes, count, strip);
}

/* ---- what is said ---- */

static bool import(const char *folder) {
  tsr_hf_import_options options = {.graphs_folder = graphs, .version = "test"};
  return tsr_hf_import(arena, folder, "out", &options, diags);
}

static void check_refused(const char *want) {
  CHECK(!import("in"));
  CHECK_STR(scratch_diags(diags), want);
  CHECK(access("out", F_OK) && access("out.partial", F_OK));
}

static void check_taken(const change *changes, int count, const char *strip) {
  make_folder(changes, count, strip);
  CHECK(import("in"));
  CHECK_STR(scratch_diags(diags), "");
  shell("cmp out/rank-00000.safetensors good/rank-00000.safetensors && rm -r out");
}

static void test_taken(void) {
  tsr_hf_import_options options = {.graphs_folder = graphs, .version = "test"};
  CHECK(tsr_hf_import(arena, llama, "good", &options, diags));
  check_taken(NULL, 0, "");
  check_taken(NULL, 0, "model.");
  static const change old[] = {
      {.as = "model.layers.0.self_attn.rotary_emb.inv_freq",
       .dtype = "F32",
       .ndim = 1,
       .shape = {4}},
      {.as = "lm_head.weight",
       .dtype = "BF16",
       .ndim = 2,
       .shape = {50, 32},
       .copy = "model.embed_tokens.weight"},
      {.as = "model.layers.0.mlp.shared_experts.up_proj.weight",
       .dtype = "BF16",
       .ndim = 2,
       .shape = {0, 32}}};
  check_taken(old, 3, "");
}

/* GPT-2's causal masks, which are no weights. */
static void test_masks(void) {
  static const change masks[] = {
      {.as = "transformer.h.0.attn.bias", .dtype = "BOOL", .ndim = 2, .shape = {2, 2}},
      {.as = "transformer.h.0.attn.masked_bias", .dtype = "F32"}};
  static const char gpt2[] = TSR_SOURCE_ROOT "/tests/checkpoint/data/hf_gpt2_tanh";
  static const char *const strips[] = {"", "transformer."};
  tsr_hf_import_options options = {.graphs_folder = graphs, .version = "test"};
  CHECK(tsr_hf_import(arena, gpt2, "good-gpt2", &options, diags));
  for (int i = 0; i < 2; i++) {
    make_folder_of(gpt2, masks, 2, strips[i]);
    CHECK(import("in"));
    CHECK_STR(scratch_diags(diags), "");
    shell("cmp out/rank-00000.safetensors good-gpt2/rank-00000.safetensors && rm -r out");
  }
  make_folder(masks, 2, "");
  check_refused(
      "error: 'in/model.safetensors': tensor 'transformer.h.0.attn.bias' of shape (2, 2) has no "
      "place in the model\n"
      "error: 'in/model.safetensors': tensor 'transformer.h.0.attn.masked_bias' of shape () has no "
      "place in the model\n");
}

/* The blocks behind the last one that predict further tokens, so many as config.json has. */
static void test_mtp(void) {
  static const change mtp[] = {
      {.as = "model.layers.2.eh_proj.weight", .dtype = "BF16", .ndim = 2, .shape = {16, 32}},
      {.as = "model.layers.2.enorm.weight", .dtype = "BF16", .ndim = 1, .shape = {16}},
      {.as = "model.layers.3.enorm.weight", .dtype = "BF16", .ndim = 1, .shape = {16}}};
  tsr_hf_import_options options = {.graphs_folder = graphs, .version = "test"};
  CHECK(tsr_hf_import(arena, deepseek, "good-v3", &options, diags));
  make_folder_of(deepseek, mtp, 2, "");
  shell(
      "sed -i 's/\"num_nextn_predict_layers\": 0/\"num_nextn_predict_layers\": 1/' in/config.json");
  CHECK(import("in"));
  CHECK_STR(
      scratch_diags(diags), "note: 'in': the 2 tensors of the layer for multi-token prediction, "
                            "from model.layers.2 on, are left out\n");
  shell("cmp out/rank-00000.safetensors good-v3/rank-00000.safetensors && rm -r out");
  make_folder_of(deepseek, mtp, 3, "");
  shell(
      "sed -i 's/\"num_nextn_predict_layers\": 0/\"num_nextn_predict_layers\": 1/' in/config.json");
  check_refused("error: 'in/model.safetensors': tensor 'model.layers.3.enorm.weight' of shape (16) "
                "has no place in the model\n");
}

static void test_tensors(void) {
  static const change head = {
      .as = "lm_head.weight", .dtype = "BF16", .ndim = 2, .shape = {50, 32}};
  make_folder(&head, 1, "");
  check_refused("error: 'in/model.safetensors': tensor 'lm_head.weight' is not "
                "'model.embed_tokens.weight', although config.json ties them\n");
  static const change all[] = {
      {.name = "model.norm.weight", .as = NULL},
      {.name = "model.layers.0.mlp.up_proj.weight", .as = "model.layers.0.mlp.up.weight"},
      {.name = "model.layers.1.self_attn.k_proj.weight",
       .as = "model.layers.1.self_attn.k_proj.weight",
       .ndim = 2,
       .shape = {32, 16}},
      {.name = "model.layers.1.input_layernorm.weight",
       .as = "model.layers.1.input_layernorm.weight",
       .dtype = "I16"},
      {.as = "model.layers.2.input_layernorm.weight", .dtype = "BF16", .ndim = 1, .shape = {32}}};
  make_folder(all, 5, "");
  check_refused(
      "error: 'in': tensor 'model.layers.0.mlp.up_proj.weight' of shape (48, 32) is missing\n"
      "error: 'in/model.safetensors': tensor 'model.layers.1.input_layernorm.weight' has the dtype "
      "I16; F32, BF16 and F16 are taken\n"
      "error: 'in/model.safetensors': tensor 'model.layers.1.self_attn.k_proj.weight' has the "
      "shape (32, 16), not (16, 32) as config.json asks for\n"
      "error: 'in': tensor 'model.norm.weight' of shape (32) is missing\n"
      "error: 'in/model.safetensors': tensor 'model.layers.0.mlp.up.weight' of shape (48, 32) has "
      "no place in the model\n"
      "error: 'in/model.safetensors': tensor 'model.layers.2.input_layernorm.weight' of shape (32) "
      "has no place in the model\n");
}

/* Experts that are missing, surplus, misshapen or of another dtype. */
static void test_experts(void) {
#define EXPERT(block, n, w) "model.layers." #block ".block_sparse_moe.experts." #n "." w ".weight"
  static const change all[] = {
      {.name = EXPERT(0, 2, "w1")},
      {.name = EXPERT(0, 3, "w2"), .as = EXPERT(0, 3, "w2"), .ndim = 2, .shape = {12, 16}},
      {.name = EXPERT(1, 1, "w3")},
      {.as = EXPERT(1, 1, "w3"), .dtype = "BF16", .ndim = 2, .shape = {12, 16}},
      {.as = EXPERT(1, 4, "w1"), .dtype = "F32", .ndim = 2, .shape = {12, 16}}};
  make_folder_of(mixtral, all, 5, "");
  const char *said = tsr_arena_printf(
      arena,
      "error: 'in': tensor '%s' of shape (12, 16) is missing\n"
      "error: 'in/model.safetensors': tensor '%s' has the shape (12, 16), not (16, 12) as "
      "config.json asks for\n"
      "error: 'in/model.safetensors': tensor '%s' has the dtype BF16, but '%s' has F32\n"
      "error: 'in/model.safetensors': tensor '%s' of shape (12, 16) has no place in the model\n",
      EXPERT(0, 2, "w1"), EXPERT(0, 3, "w2"), EXPERT(1, 1, "w3"), EXPERT(1, 0, "w3"),
      EXPERT(1, 4, "w1"));
  check_refused(said);
  make_folder_of(mixtral, NULL, 0, "");
  shell("sed -i 's/\"num_local_experts\": 4/\"num_local_experts\": 65536/' in/config.json");
  check_refused(
      "error: 'in/model.safetensors': tensor 'model.layers.0.block_sparse_moe.gate.weight' has the "
      "shape (4, 16), not (65536, 16) as config.json asks for\n"
      "error: 'in': config.json asks for 65536 experts, but there are 41 tensors\n"
      "error: 'in/model.safetensors': tensor 'model.layers.1.block_sparse_moe.gate.weight' has the "
      "shape (4, 16), not (65536, 16) as config.json asks for\n");
}

static void test_files(void) {
  shell("rm -rf in && mkdir in");
  check_refused("error: cannot read 'in/config.json': No such file or directory\n");
  shell(tsr_arena_printf(arena, "cp %s/config.json in/", llama));
  check_refused("error: there is neither 'model.safetensors' nor 'model.safetensors.index.json' in "
                "'in'\n");
  shell("touch in/pytorch_model.bin");
  check_refused("error: there is neither 'model.safetensors' nor 'model.safetensors.index.json' in "
                "'in'\n"
                "      = pytorch_model.bin is not read: transformers' save_pretrained writes "
                "safetensors\n");
  scratch_text("in/model.safetensors", "12345678{}");
  check_refused("error: 'in/model.safetensors', byte 0: a header of 4050765991979987505 bytes; at "
                "most 100000000 are read\n");
  scratch_text("in/model.safetensors.index.json", "{}");
  check_refused("error: 'in/model.safetensors.index.json': 'weight_map' should be an object\n");
  scratch_text("in/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\"}}");
  check_refused("error: 'in/model.safetensors.index.json': the file of tensor 'a' should be a name "
                "in this folder\n");
  scratch_text("in/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"x\"}}");
  check_refused("error: cannot read 'in/x': No such file or directory\n");
  make_folder(NULL, 0, "");
  scratch_text(
      "in/model.safetensors.index.json",
      "{\"weight_map\": {\"a\": \"model.safetensors\", \"model.norm.weight\": "
      "\"model.safetensors\"}}");
  check_refused("error: 'in/model.safetensors.index.json': tensor 'a' is not in "
                "'model.safetensors'\n");
  scratch_text(
      "in/model.safetensors.index.json",
      "{\"weight_map\": {\"model.norm.weight\": \"model.safetensors\"}}");
  check_refused("error: 'in/model.safetensors.index.json' lists 1 tensors, its files have 20\n");
  shell("cp in/model.safetensors in/two.safetensors");
  scratch_text(
      "in/model.safetensors.index.json",
      "{\"weight_map\": {\"model.norm.weight\": \"model.safetensors\", "
      "\"model.embed_tokens.weight\": \"two.safetensors\"}}");
  check_refused("error: 'in/model.safetensors.index.json' lists 2 tensors, its files have 40\n");
}

static void test_blocks(void) {
  make_folder(NULL, 0, "");
  shell("sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 2000000000/' in/config.json");
  check_refused("error: 'in': config.json asks for 2000000000 blocks, but there are 20 tensors\n");
}

static void test_options(void) {
  tsr_hf_import_options options = {graphs, "test", 0, 65};
  CHECK(!tsr_hf_import(arena, llama, "out", &options, diags));
  CHECK_STR(
      scratch_diags(diags),
      tsr_arena_printf(
          arena, "error: '%s/config.json': a sequence_length of 65 is longer than the model's 64\n",
          llama));
  shell("mkdir out");
  CHECK(!import(llama));
  CHECK_STR(scratch_diags(diags), "error: 'out' is there already\n");
  shell("rmdir out");
}

/* ---- export ---- */

static void check_not_exported(const char *checkpoint, const char *dtype, const char *want) {
  tsr_hf_export_options options = {graphs, dtype, 0};
  CHECK(!tsr_hf_export(arena, checkpoint, "out", &options, diags));
  CHECK_STR(scratch_diags(diags), want);
  CHECK(access("out", F_OK) && access("out.partial", F_OK));
}

/* A checkpoint of this configuration, without tensors. */
static void make_checkpoint(const char *name, const char *config) {
  tsr_checkpoint_writer *output;
  tsr_manifest about = {.config = "config.yaml"};
  CHECK(
      tsr_checkpoint_writer_begin(arena, name, NULL, NULL, &output, diags) &&
      tsr_checkpoint_writer_bytes(output, "config.yaml", config, strlen(config), diags) &&
      tsr_checkpoint_writer_commit(output, &about, diags));
}

static void test_export(void) {
  check_not_exported(
      "good", "f8",
      "error: 'f8' is no dtype to export weights in\n"
      "      = valid: f32, bf16, f16\n");
  shell("cp -r good bad && printf x | dd of=bad/rank-00000.safetensors bs=1 seek=9000 "
        "conv=notrunc status=none");
  tsr_hf_export_options options = {graphs, NULL, 0};
  CHECK(!tsr_hf_export(arena, "bad", "out", &options, diags));
  const char *said = scratch_diags(diags);
  CHECK_AT(
      strstr(said, "bad/rank-00000.safetensors: error: tensor '") && strstr(said, "is damaged"),
      "%s", said);
  CHECK(access("out", F_OK) && access("out.partial", F_OK));

  make_checkpoint("mlp", "mlp_config:\n  input_features: 3\n  output_features: 2\n");
  check_not_exported(
      "mlp", NULL,
      "mlp/config.yaml:1:1: error: transformers has no class for mlp\n"
      "    1 | mlp_config:\n"
      "      | ^~~~~~~~~~\n"
      "      = graphs with 'huggingface' can be exported: deepseek, deepseek_v2, deepseek_v3, "
      "gemma2, gemma3, glm4_moe, gpt2, gpt_neox, gpt_oss, granite, llama, mixtral, olmo2, olmoe, "
      "phi3, "
      "qwen2, qwen2_moe, qwen3, qwen3_moe, smollm3, starcoder2\n");
  make_checkpoint(
      "bare", "transformer_config:\n  model_type: gpt2\n  vocab_size: 50\n  bias: false\n");
  check_not_exported(
      "bare", NULL,
      "bare/config.yaml:2:15: error: transformers has no gpt2 without biases, as 'bias: false' "
      "asks "
      "for\n"
      "    2 |   model_type: gpt2\n"
      "      |               ^~~~\n");
  make_checkpoint("empty", "transformer_config:\n  model_type: llama\n  vocab_size: 50\n");
  check_not_exported("empty", NULL, "error: 'empty' has no parameter 'wte'\n");
  shell("mkdir out");
  CHECK(!tsr_hf_export(arena, "good", "out", &options, diags));
  CHECK_STR(scratch_diags(diags), "error: 'out' is there already\n");
  shell("rmdir out");
}

/* The first bytes of a tensor of the folder "in". */
static void set_bytes(const char *tensor, const void *bytes, size_t length) {
  tsr_hf_folder in;
  CHECK(tsr_hf_folder_open(arena, "in", &in, diags));
  tsr_hf_tensor *t = tsr_hf_folder_find(&in, tensor);
  FILE *file = fopen("in/model.safetensors", "r+b");
  CHECK(
      t && file && fseek(file, (long)t->tensor->offset, SEEK_SET) == 0 &&
      fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
  tsr_hf_folder_close(&in);
}

/* What a dtype cannot hold is not written as infinity; an infinity is. */
static void test_overflow(void) {
  static const uint16_t bf16[] = {0x4780, 0x477f, 0xc780, 0x7f80}; /* 65536, 65280, -65536, inf */
  static const uint32_t f32[] = {0x7f7fffff};
  make_folder(NULL, 0, "");
  set_bytes("model.norm.weight", bf16, sizeof bf16);
  CHECK(import("in"));
  shell("mv out large");
  check_not_exported(
      "large", "f16",
      "error: 'large': tensor 'model.norm.weight' has 2 values beyond the range of f16, whose "
      "largest number is 65504\n"
      "      = export it in bf16 or f32\n");
  tsr_hf_export_options options = {graphs, "f32", 0};
  CHECK(tsr_hf_export(arena, "large", "out", &options, diags));
  shell("rm -r out");
  make_folder_of(mixtral, NULL, 0, "");
  set_bytes("model.norm.weight", f32, sizeof f32);
  CHECK(import("in"));
  shell("mv out larger");
  check_not_exported(
      "larger", "bf16",
      "error: 'larger': tensor 'model.norm.weight' has 1 value beyond the range of bf16, whose "
      "largest number is 3.39e38\n"
      "      = export it in f32\n");
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  test_taken();
  test_masks();
  test_mtp();
  test_tensors();
  test_experts();
  test_files();
  test_blocks();
  test_options();
  test_export();
  test_overflow();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("hf_errors");
}
