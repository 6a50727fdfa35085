// SPDX-License-Identifier: Apache-2.0
/* The dimension of the mesh over which tt-train distributes experts, as an axis. */
#include "base/axis.h"
#include "helper.h"
#include <stdarg.h>

#define D(words) "device_config: {" words "}\n"

/* The mesh that a text makes: its axes and sizes, from the first dimension on. */
static void check_mesh(const char *text, const char *words, int count, ...) {
  va_list list;
  loaded l = load(text);
  const tsr_config_device *d = &l.config->device;
  CHECK_STR(l.said, words);
  CHECK_AT(d->axes_count == count && d->mesh_ndim == count, "%s: %d axes", text, d->axes_count);
  va_start(list, count);
  for (int i = 0; i < count; i++) {
    int axis = va_arg(list, int), size = va_arg(list, int);
    CHECK_AT(d->axes[i] == axis && d->mesh_shape[i] == size, "%s: dimension %d", text, i);
  }
  va_end(list);
  unload(&l);
}

static void test_taken(void) {
  check_mesh(D("mesh_shape: [2, 4], enable_ddp: true, moe_axis: 1"), "", 2, TSR_DP, 2, TSR_TP, 4);
  check_mesh(
      D("mesh_shape: [4, 2], enable_ddp: true, moe_ep_axis: 0"), "", 2, TSR_TP, 4, TSR_DP, 2);
  check_mesh(D("mesh_shape: [1, 4], moe_tp_axis: 1"), "", 1, TSR_TP, 4);
  check_mesh(
      D("mesh_shape: [1, 2, 4], enable_fsdp: true, moe_axis: 2, moe_ep_axis: 2"), "", 2, TSR_DP, 2,
      TSR_TP, 4);
  /* ddp's own dimension splits the samples and the experts */
  check_mesh(D("mesh_shape: [8], enable_ddp: true, moe_axis: 0"), "", 1, TSR_EP, 8);
  /* whatever dimensions of size 1 stand beside it */
  check_mesh(D("mesh_shape: [2, 1], enable_ddp: true, moe_axis: 0"), "", 1, TSR_EP, 2);
  check_mesh(D("mesh_shape: [1, 2], enable_ddp: true, moe_axis: 1"), "", 1, TSR_EP, 2);
  check_mesh(
      D("mesh_shape: [1, 2, 4], enable_ddp: true, enable_pp: true, moe_axis: 1"), "", 2, TSR_EP, 2,
      TSR_PP, 4);
  check_mesh(
      D("mesh_shape: [2, 1, 1], enable_ddp: true, enable_cp: true, moe_axis: 0"), "", 2, TSR_EP, 2,
      TSR_CP, 1);
  CHECK_VALUE(D("mesh_shape: [8], enable_ddp: true, moe_axis: 0"), device.enable_ep, 1);
  CHECK_VALUE(D("mesh_shape: [8], enable_ddp: true, moe_axis: 0"), device.enable_ddp, 0);
  CHECK_VALUE(D("mesh_shape: [1, 4], moe_axis: 1"), device.enable_tp, 1);
  check_mesh(
      D("mesh_shape: [8, 4], moe_tp_axis: 1"),
      "run.yaml:1:17: warning: dimension 0 of the mesh, of 8 devices, is left out: beside "
      "'moe_tp_axis' no strategy is on, and tt-train's devices there would all do the same\n"
      "    1 | device_config: {mesh_shape: [8, 4], moe_tp_axis: 1}\n"
      "      |                 ^~~~~~~~~~\n",
      1, TSR_TP, 4);
}

/* Where the mesh says it already, or there is nothing to distribute over. */
static void test_unchanged(void) {
  CHECK_VALUE(D("mesh_shape: [1, 8], enable_tp: true, moe_axis: 0"), device.axes_count, 0);
  CHECK_VALUE(D("mesh_shape: [8, 1], enable_ddp: true, moe_axis: 1"), device.axes_count, 0);
  CHECK_VALUE(D("mesh_shape: [8], enable_cp: true, moe_axis: 0"), device.axes_count, 0);
  CHECK_VALUE(D("mesh_shape: [2, 1], enable_cp: true, moe_axis: 0"), device.axes_count, 0);
  CHECK_VALUE(D("mesh_shape: [1, 2], enable_cp: true, moe_axis: 1"), device.axes_count, 0);
  CHECK_VALUE(D("mesh_shape: [2, 1], enable_ddp: true, moe_axis: 1"), device.axes_count, 0);
  CHECK_VALUE(
      D("mesh_shape: [1, 8], enable_ddp: true, enable_cp: true, moe_axis: 0"), device.enable_ddp,
      1);
  CHECK_VALUE(D("mesh_shape: [8], enable_ep: true, moe_axis: 0"), device.axes_count, 0);
  CHECK_VALUE(D("moe_axis: 1"), device.axes_count, 0);
  CHECK_VALUE(D("moe_axis: 1") "mesh: {axes: [dp, ep], shape: [2, 2]}\n", device.axes_count, 2);
}

static void test_refused(void) {
  CHECK_SAID(
      D("mesh_shape: [2, 4], moe_axis: 2"), false,
      "run.yaml:1:47: error: 'moe_axis' is dimension 2, but the mesh has 2, counted from 0\n"
      "    1 | device_config: {mesh_shape: [2, 4], moe_axis: 2}\n"
      "      |                                               ^\n");
  CHECK_SAID(
      D("mesh_shape: [2, 4], moe_axis: 0, moe_tp_axis: 1"), false,
      "run.yaml:1:50: error: 'moe_tp_axis' contradicts 'moe_axis'\n"
      "    1 | device_config: {mesh_shape: [2, 4], moe_axis: 0, moe_tp_axis: 1}\n"
      "      |                                                  ^~~~~~~~~~~\n"
      "      = 'moe_axis' stands in run.yaml:1\n");
  CHECK_SAID(
      D("mesh_shape: [8], enable_fsdp: true, moe_axis: 0"), false,
      "run.yaml:1:63: error: 'moe_axis' is dimension 0, which is fsdp: experts are distributed "
      "over tp, ep or cp\n"
      "    1 | device_config: {mesh_shape: [8], enable_fsdp: true, moe_axis: 0}\n"
      "      |                                                               ^\n");
  CHECK_SAID(
      D("mesh_shape: [1, 8], enable_fsdp: true, moe_axis: 1"), false,
      "run.yaml:1:66: error: 'moe_axis' is dimension 1, which is fsdp: experts are distributed "
      "over tp, ep or cp\n"
      "    1 | device_config: {mesh_shape: [1, 8], enable_fsdp: true, moe_axis: 1}\n"
      "      |                                                                  ^\n");
  CHECK_SAID(
      D("moe_axis: 0") "mesh: {axes: [dp, ep], shape: [2, 2]}\n", false,
      "run.yaml:1:27: error: 'moe_axis' is dimension 0, which is dp: experts are distributed over "
      "tp, ep or cp\n"
      "    1 | device_config: {moe_axis: 0}\n"
      "      |                           ^\n");
  CHECK_SAID(
      D("mesh_shape: [2, 2, 2], enable_ddp: true, moe_axis: 2"), false,
      "run.yaml:1:68: error: beside 'moe_axis' the mesh has 1 dimension without a strategy\n"
      "    1 | device_config: {mesh_shape: [2, 2, 2], enable_ddp: true, moe_axis: 2}\n"
      "      |                                                                    ^\n");
  CHECK_SAID(
      D("mesh_shape: [2, 2], moe_axis: -1"), false,
      "run.yaml:1:47: error: 'moe_axis' must be at least 0, found the integer -1\n"
      "    1 | device_config: {mesh_shape: [2, 2], moe_axis: -1}\n"
      "      |                                               ^~\n");
}

int main(void) {
  test_taken();
  test_unchanged();
  test_refused();
  return check_done("config.moe_axis");
}
