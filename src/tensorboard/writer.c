// SPDX-License-Identifier: Apache-2.0
#include "tensorboard/writer_internal.h"
#include <string.h>
#include <time.h>

tsr_tensorboard *tsr_tensorboard_new(tsr_arena *arena, const char *folder) {
  tsr_tensorboard *writer = tsr_arena_alloc(arena, sizeof *writer);
  *writer = (tsr_tensorboard){.file = tsr_event_file_new(arena, folder)};
  return writer;
}

double tsr_tensorboard_now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- messages ---- */

typedef struct {
  ProtobufCBuffer base;
  tsr_text *text;
} text_buffer;

static void append(ProtobufCBuffer *buffer, size_t length, const uint8_t *bytes) {
  tsr_text_add_bytes(((text_buffer *)buffer)->text, bytes, length);
}

void tsr_tensorboard_pack(const ProtobufCMessage *message, tsr_text *text) {
  text_buffer buffer = {.base.append = append, .text = text};
  text->length = 0;
  protobuf_c_message_pack_to_buffer(message, &buffer.base);
}

void tsr_tensorboard_add_event(tsr_tensorboard *writer, Tensorboard__Event *event, int64_t step) {
  event->wall_time = tsr_tensorboard_now();
  event->step = step;
  tsr_tensorboard_pack(&event->base, &writer->event);
  tsr_event_file_add(writer->file, &writer->event);
}

void tsr_tensorboard_add_value(
    tsr_tensorboard *writer, int64_t step, Tensorboard__Summary__Value *value) {
  Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
  Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
  summary.n_value = 1;
  summary.value = &value;
  event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
  event.summary = &summary;
  tsr_tensorboard_add_event(writer, &event, step);
}

/* ---- the run ---- */

/* The first record has the version, by which readers know that what follows a START is all there is
 * of its step and later ones. */
static void add_start(tsr_tensorboard *writer, int64_t step) {
  Tensorboard__Event version = TENSORBOARD__EVENT__INIT, start = TENSORBOARD__EVENT__INIT;
  Tensorboard__SourceMetadata source = TENSORBOARD__SOURCE_METADATA__INIT;
  Tensorboard__SessionLog log = TENSORBOARD__SESSION_LOG__INIT;
  source.writer = TSR_EVENT_FILE_WRITER;
  version.source_metadata = &source;
  version.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
  version.file_version = "brain.Event:2";
  tsr_tensorboard_add_event(writer, &version, step);
  log.status = TENSORBOARD__SESSION_LOG__SESSION_STATUS__START;
  start.what_case = TENSORBOARD__EVENT__WHAT_SESSION_LOG;
  start.session_log = &log;
  tsr_tensorboard_add_event(writer, &start, step ? step + 1 : 0);
}

bool tsr_tensorboard_begin(
    tsr_tensorboard *writer, int64_t step, bool *ret_is_new, tsr_diags *diags) {
  bool kept;
  if (!tsr_event_file_begin(writer->file, step, &kept, diags)) return false;
  *ret_is_new = !kept;
  add_start(writer, step);
  tsr_event_file_flush(writer->file, step, diags);
  return true;
}

void tsr_tensorboard_flush(tsr_tensorboard *writer, int64_t step, tsr_diags *diags) {
  tsr_event_file_flush(writer->file, step, diags);
}

bool tsr_tensorboard_finish(tsr_tensorboard *writer, tsr_diags *diags) {
  return tsr_event_file_finish(writer->file, diags);
}

void tsr_tensorboard_close(tsr_tensorboard *writer) {
  tsr_event_file_close(writer->file);
  tsr_text_free(&writer->event);
  tsr_text_free(&writer->part);
}

/* ---- values of steps ---- */

void tsr_tensorboard_add_scalars(
    tsr_tensorboard *writer, int64_t step, const tsr_tensorboard_scalar *scalars, int count) {
  Tensorboard__Summary__Value values[TSR_TENSORBOARD_SCALARS_MAX];
  Tensorboard__Summary__Value *list[TSR_TENSORBOARD_SCALARS_MAX];
  Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
  Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
  for (int i = 0; i < count && i < TSR_TENSORBOARD_SCALARS_MAX; i++) {
    tensorboard__summary__value__init(list[i] = &values[i]);
    values[i].tag = (char *)scalars[i].tag;
    values[i].value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    values[i].simple_value = (float)scalars[i].value;
    summary.n_value++;
  }
  summary.value = list;
  event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
  event.summary = &summary;
  tsr_tensorboard_add_event(writer, &event, step);
}

void tsr_tensorboard_add_text(
    tsr_tensorboard *writer, int64_t step, const char *tag, const char *text) {
  Tensorboard__SummaryMetadata__PluginData plugin =
      TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
  Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
  Tensorboard__TensorShapeProto scalar = TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
  Tensorboard__TensorProto tensor = TENSORBOARD__TENSOR_PROTO__INIT;
  Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
  ProtobufCBinaryData bytes = {strlen(text), (uint8_t *)text};
  plugin.plugin_name = "text";
  metadata.plugin_data = &plugin;
  metadata.data_class = TENSORBOARD__DATA_CLASS__DATA_CLASS_TENSOR;
  tensor.dtype = TENSORBOARD__DATA_TYPE__DT_STRING;
  tensor.tensor_shape = &scalar; // ()
  tensor.n_string_val = 1;
  tensor.string_val = &bytes;
  value.tag = (char *)tag;
  value.metadata = &metadata;
  value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_TENSOR;
  value.tensor = &tensor;
  tsr_tensorboard_add_value(writer, step, &value);
}

static void add_buckets(
    tsr_tensorboard *writer, int64_t step, const char *tag, Tensorboard__HistogramProto *histogram,
    const double *limit, const double *count, int buckets) {
  Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
  histogram->n_bucket_limit = histogram->n_bucket = (size_t)buckets;
  histogram->bucket_limit = (double *)limit;
  histogram->bucket = (double *)count;
  value.tag = (char *)tag;
  value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_HISTO;
  value.histo = histogram;
  tsr_tensorboard_add_value(writer, step, &value);
}

void tsr_tensorboard_add_histogram(
    tsr_tensorboard *writer, int64_t step, const char *tag, const tsr_histogram *h) {
  Tensorboard__HistogramProto histogram = TENSORBOARD__HISTOGRAM_PROTO__INIT;
  histogram.min = h->min;
  histogram.max = h->max;
  histogram.num = (double)h->num;
  histogram.sum = h->sum;
  histogram.sum_squares = h->sum_squares;
  add_buckets(writer, step, tag, &histogram, h->limit, h->count, h->buckets);
}

void tsr_tensorboard_add_counts(
    tsr_tensorboard *writer, int64_t step, const char *tag, const double *counts, int count) {
  Tensorboard__HistogramProto histogram = TENSORBOARD__HISTOGRAM_PROTO__INIT;
  double limit[TSR_TENSORBOARD_COUNTS_MAX], sums[TSR_TENSORBOARD_COUNTS_MAX];
  int each = (count + TSR_TENSORBOARD_COUNTS_MAX - 1) / TSR_TENSORBOARD_COUNTS_MAX;
  int buckets = each ? (count + each - 1) / each : 0;
  for (int b = 0; b < buckets; b++) limit[b] = (b + 1) * (double)each, sums[b] = 0;
  for (int i = 0; i < count; i++) {
    sums[i / each] += counts[i];
    histogram.num += counts[i];
    histogram.sum += counts[i] * (i + 0.5);
    histogram.sum_squares += counts[i] * (i + 0.5) * (i + 0.5);
  }
  histogram.max = count;
  add_buckets(writer, step, tag, &histogram, limit, sums, buckets);
}
