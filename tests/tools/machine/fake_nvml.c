/* A stand-in for libnvidia-ml.so.1 on machines without a GPU: the NVML calls the probe makes, answered from FAKE_NVML.
   sick: two cards, the second with errors; lost: the second is gone; hang: the second never answers;
   mismatch: the kernel module is of another version; unloaded: no driver; none: no card in sight. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int index; } Card;
static Card cards[2] = {{0}, {1}};
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned long long total, free_, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free_, used; } Memory2;
typedef struct { unsigned gpu, memory; } Use;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } Process;
enum { OK, INVALID = 2, UNSUPPORTED = 3, NOT_LOADED = 9, SMALL = 7, LOST = 15, MISMATCH = 18 };

static int mode(const char *name) { const char *m = getenv("FAKE_NVML"); return m && !strcmp(m, name); }
static int sick(Card *c) { return c->index == 1 && mode("sick"); }

int nvmlInit_v2(void) { return mode("mismatch") ? MISMATCH : mode("unloaded") ? NOT_LOADED : OK; }
int nvmlInitWithFlags(unsigned f) { (void)f; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.65.06", n); return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = mode("none") ? 0 : 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Card **c) {
  if (i > 1) return INVALID;
  *c = &cards[i];
  return i == 1 && mode("lost") ? LOST : OK;
}
int nvmlDeviceGetName(Card *c, char *s, unsigned n) { (void)c; strncpy(s, "NVIDIA H100 80GB HBM3", n); return OK; }
int nvmlDeviceGetPciInfo_v3(Card *c, Pci *p) {
  memset(p, 0, sizeof *p);
  strcpy(p->bus_id, c->index ? "00000000:1A:00.0" : "00000000:19:00.0");
  return OK;
}
int nvmlDeviceGetMemoryInfo_v2(Card *c, Memory2 *m) {
  if (c->index == 1 && mode("hang")) sleep(600);
  m->total = 81559ull << 20; m->reserved = 500ull << 20;
  m->used = (sick(c) ? 40000ull : 600ull) << 20; m->free_ = m->total - m->used;
  return OK;
}
int nvmlDeviceGetUtilizationRates(Card *c, Use *u) { u->gpu = sick(c) ? 97 : 0; u->memory = 0; return OK; }
int nvmlDeviceGetTemperature(Card *c, int sensor, unsigned *t) { (void)sensor; *t = sick(c) ? 89 : 34; return OK; }
int nvmlDeviceGetPowerUsage(Card *c, unsigned *w) { (void)c; *w = 70500; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Card *c, unsigned *w) { *w = sick(c) ? 350000 : 700000; return OK; }
int nvmlDeviceGetPowerManagementDefaultLimit(Card *c, unsigned *w) { (void)c; *w = 700000; return OK; }
int nvmlDeviceGetClockInfo(Card *c, int kind, unsigned *m) { (void)kind; *m = sick(c) ? 600 : 345; return OK; }
int nvmlDeviceGetMaxClockInfo(Card *c, int kind, unsigned *m) { (void)c; (void)kind; *m = 1980; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Card *c, unsigned long long *bits) { *bits = sick(c) ? 0x40 : 0x1; return OK; }
int nvmlDeviceGetEccMode(Card *c, int *now, int *next) { (void)c; *now = *next = 1; return OK; }
int nvmlDeviceGetTotalEccErrors(Card *c, int kind, int since, unsigned long long *n) {
  *n = sick(c) && kind == 1 ? (since ? 9 : 3) : 0;
  return OK;
}
int nvmlDeviceGetRemappedRows(Card *c, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
  *a = 0; *b = *pending = sick(c); *failed = 0;
  return OK;
}
int nvmlDeviceGetMaxPcieLinkWidth(Card *c, unsigned *n) { (void)c; *n = 16; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(Card *c, unsigned *n) { *n = sick(c) ? 8 : 16; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(Card *c, unsigned *n) { (void)c; *n = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(Card *c, unsigned *n) { *n = sick(c) ? 3 : 1; return OK; }
int nvmlDeviceGetPcieReplayCounter(Card *c, unsigned *n) { (void)c; *n = 0; return OK; }
int nvmlDeviceGetNvLinkState(Card *c, unsigned link, int *up) {
  if (link > 3) return INVALID;
  *up = !(sick(c) && link == 2);
  return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(Card *c, unsigned link, int kind, unsigned long long *n) {
  *n = sick(c) && link == 1 && kind == 2 ? 77 : 0;
  return OK;
}
int nvmlDeviceGetPersistenceMode(Card *c, int *on) { (void)c; *on = 1; return OK; }
int nvmlDeviceGetMigMode(Card *c, unsigned *now, unsigned *next) { (void)c; *now = *next = 0; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(Card *c, unsigned *n, Process *p) {
  const char *pid = getenv("FAKE_PID");
  if (!sick(c) || !pid) { *n = 0; return OK; }
  if (!p) { *n = 2; return SMALL; }
  *n = 2;
  p[0] = (Process){atoi(pid), 39000ull << 20, 0, 0};
  p[1] = (Process){4194303, 900ull << 20, 0, 0};
  return OK;
}
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "error of the stand-in"; }
