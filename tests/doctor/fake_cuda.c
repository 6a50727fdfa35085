// SPDX-License-Identifier: Apache-2.0
/* A plugin of devices that are not there; $FAKE_CUDA says what is wrong with them. */
#include "device/cuda/plugin_abi.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *what) {
  const char *fault = getenv("FAKE_CUDA");
  return fault && !strcmp(fault, what);
}

static bool fail(char *why, const char *text) {
  snprintf(why, TSR_CUDA_WHY_BYTES, "%s", text);
  return false;
}

static void versions(int *ret_driver, int *ret_runtime) {
  *ret_driver = 13020;
  *ret_runtime = is("old runtime") ? 12040 : 13010;
  if (is("crash")) raise(SIGKILL);
  if (is("hang")) pause();
  if (is("exit")) _exit(3);
  puts("what libraries print is not for the user");
}

static bool count(int *ret_count, char *why) {
  if (is("no devices")) return fail(why, "no device: it has gone\nput it back");
  *ret_count = is("one") ? 1 : 3;
  return true;
}

static bool describe(int device, tsr_cuda_device *ret, char *why) {
  if (is("lost") && device == 1) return fail(why, "its memory: it fell off the bus\nreboot");
  *ret = (tsr_cuda_device){
      .name = "Fake H200", .major = 9, .processors = 132, .bytes = (int64_t)141 << 30};
  if (is("old device") && device == 0) ret->major = 7, ret->minor = 5;
  ret->bytes_free = (int64_t)140 << 30;
  snprintf(ret->pci, sizeof ret->pci, "0000:%02x:00.0", 0x1b + device);
  return true;
}

static bool find_link(int from, int to, tsr_cuda_link *ret, char *why) {
  if (is("no link")) return fail(why, "the link between two devices: nobody knows");
  bool far = is("pcie") || (is("mixed") && from + to == 3);
  *ret = (tsr_cuda_link){.nvlinks = far ? 0 : 18, .peers = !far};
  strcpy(ret->path, far ? "SYS" : "NV18");
  return true;
}

static bool fits(const tsr_cuda_device *device, char *why) {
  return device->major >= 8 || fail(why, "sm_75: too old\ntake another");
}

static bool nccl(int *ret_version, char ret_id[TSR_CUDA_UNIQUE_BYTES], char *why) {
  *ret_version = 0;
  if (is("no nccl")) return fail(why, "libnccl.so.2: not there");
  *ret_version = is("old nccl") ? 21805 : 22809;
  if (is("no id")) return fail(why, "it makes no id of a group\nlook at the network");
  memset(ret_id, 1, TSR_CUDA_UNIQUE_BYTES);
  return true;
}

extern const tsr_cuda_table tsr_cuda_entry;
__attribute__((visibility("default"))) const tsr_cuda_table tsr_cuda_entry = {
    .head = {TSR_CUDA_ABI, sizeof(tsr_cuda_table), "cuda"},
    .layout = TSR_CUDA_LAYOUT,
    .built_cuda = 13000,
    .built_nccl = 22809,
    .versions = versions,
    .count = count,
    .describe = describe,
    .link = find_link,
    .fits = fits,
    .nccl = nccl};
