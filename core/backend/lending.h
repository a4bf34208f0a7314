// Devices lent to composites: tables that look like the plugin's and serialise control calls between all who hold a
// device. Floor 3, internal to core/backend.
//
// Handles are the plugin's own, so that hot calls and extensions pass straight through. A control function that gets no
// device looks up whose object it was given.
#pragma once
#include "moehost/device.h"

namespace moehost {

class DeviceImpl;

// One plugin's tables as lent. Points into itself: neither copied nor moved.
struct LentTables {
  explicit LentTables(const mh_plugin& api);
  LentTables(const LentTables&) = delete;
  LentTables& operator=(const LentTables&) = delete;

  mh_plugin plugin;
  mh_device_table device;
  mh_buffer_table buffer;
  mh_op_table op;
  mh_kv_table kv;
  mh_queue_table queue;
};

// From lending to return the device's handle can be used with LentTables. [any]
void start_lending(mh_device* raw, DeviceImpl* device);
void stop_lending(mh_device* raw);

}  // namespace moehost
