/* A plugin that needs a function nobody has: it cannot be loaded. */
#include "moehost/device.h"

const mh_plugin* moehost_test_absent(void);
const mh_plugin* moehost_plugin_v1(uint32_t minor_lo, uint32_t minor_hi) {
  (void)minor_lo, (void)minor_hi;
  return moehost_test_absent();
}
