// SPDX-License-Identifier: Apache-2.0
/* What the hparams plugin reads: a session's hyper-parameters at its start, its status at its end.
 * Both are the content of plugin data, under tags that the plugin fixes. */
#include "tensorboard/writer_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A summary has some value: the plugin's own writer gives an f32 tensor without elements. */
static void add_plugin_data(
    tsr_tensorboard *writer, int64_t step, const char *tag,
    const Tensorboard__HParamsPluginData *d) {
  Tensorboard__SummaryMetadata__PluginData plugin =
      TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
  Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
  Tensorboard__TensorShapeProto__Dim none = TENSORBOARD__TENSOR_SHAPE_PROTO__DIM__INIT;
  Tensorboard__TensorShapeProto__Dim *dims[] = {&none};
  Tensorboard__TensorShapeProto shape = TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
  Tensorboard__TensorProto tensor = TENSORBOARD__TENSOR_PROTO__INIT;
  Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
  tsr_tensorboard_pack(&d->base, &writer->part);
  plugin.plugin_name = "hparams";
  plugin.content = (ProtobufCBinaryData){writer->part.length, (uint8_t *)writer->part.data};
  metadata.plugin_data = &plugin;
  shape.n_dim = 1;
  shape.dim = dims; // (0)
  tensor.dtype = TENSORBOARD__DATA_TYPE__DT_FLOAT;
  tensor.tensor_shape = &shape;
  value.tag = (char *)tag;
  value.metadata = &metadata;
  value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_TENSOR;
  value.tensor = &tensor;
  tsr_tensorboard_add_value(writer, step, &value);
}

static void set_value(const char *text, Tensorboard__HParamValue *value) {
  char *end;
  double number = strtod(text, &end);
  bool yes = !strcmp(text, "true"), no = !strcmp(text, "false");
  tensorboard__hparam_value__init(value);
  if (yes || no) {
    value->kind_case = TENSORBOARD__HPARAM_VALUE__KIND_BOOL_VALUE;
    value->bool_value = yes;
  } else if (*text && !*end && isfinite(number)) {
    value->kind_case = TENSORBOARD__HPARAM_VALUE__KIND_NUMBER_VALUE;
    value->number_value = number;
  } else {
    value->kind_case = TENSORBOARD__HPARAM_VALUE__KIND_STRING_VALUE;
    value->string_value = (char *)text;
  }
}

void tsr_tensorboard_add_hparams(
    tsr_tensorboard *writer, const tsr_tensorboard_hparam *hparams, int count) {
  tsr_arena *arena = tsr_arena_new();
  Tensorboard__SessionStartInfo info = TENSORBOARD__SESSION_START_INFO__INIT;
  Tensorboard__HParamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
  Tensorboard__SessionStartInfo__Entry *entries =
      tsr_arena_array(arena, Tensorboard__SessionStartInfo__Entry, count + 1);
  Tensorboard__HParamValue *values = tsr_arena_array(arena, Tensorboard__HParamValue, count + 1);
  info.hparams = tsr_arena_array(arena, Tensorboard__SessionStartInfo__Entry *, count + 1);
  for (int i = 0; i < count; i++) {
    tensorboard__session_start_info__entry__init(info.hparams[i] = &entries[i]);
    set_value(hparams[i].value, entries[i].value = &values[i]);
    entries[i].key = (char *)hparams[i].key;
  }
  info.n_hparams = (size_t)count;
  info.start_time_secs = tsr_tensorboard_now();
  data.data_case = TENSORBOARD__HPARAMS_PLUGIN_DATA__DATA_SESSION_START_INFO;
  data.session_start_info = &info;
  add_plugin_data(writer, 0, "_hparams_/session_start_info", &data);
  tsr_arena_free(arena);
}

void tsr_tensorboard_add_end(tsr_tensorboard *writer, int64_t step, bool is_done) {
  Tensorboard__SessionEndInfo info = TENSORBOARD__SESSION_END_INFO__INIT;
  Tensorboard__HParamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
  info.status = is_done ? TENSORBOARD__SESSION_END_INFO__STATUS__STATUS_SUCCESS
                        : TENSORBOARD__SESSION_END_INFO__STATUS__STATUS_UNKNOWN;
  info.end_time_secs = tsr_tensorboard_now();
  data.data_case = TENSORBOARD__HPARAMS_PLUGIN_DATA__DATA_SESSION_END_INFO;
  data.session_end_info = &info;
  add_plugin_data(writer, step, TSR_EVENT_FILE_END, &data);
}
