// The HTTP server: answers health from the first second, and requests once a model is there. Floor 6.
//
// One thread runs all connections as coroutines; a second one reads and tokenises bodies; the engine has its own
// (generation_queue.h). Limits: constants at the top of http_server.cpp.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "core/engine/engine.h"

namespace moehost {

class HttpServer {
 public:
  // Binds and begins to answer. kUnavailable: the address cannot be had.
  static Result<std::unique_ptr<HttpServer>> listen(const Config& config);
  ~HttpServer();

  // "http://127.0.0.1:8080"; with port 0 in the config the one the system chose.
  const std::string& address() const;
  // Shown by /ready until serve(). [any thread]
  void set_progress(double fraction);
  // From now on requests are answered. engine lives until wait() returns; engine_cancel: the flag it was loaded with.
  void serve(Engine& engine, std::atomic<bool>& engine_cancel);
  // No new connections or requests; those under way are answered, then wait() returns. [any thread]
  void drain();
  // Until drained; the engine is not used afterwards.
  void wait();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// An address that only this machine can reach: 127.0.0.0/8, ::1, localhost.
bool is_loopback(const std::string& host);

}  // namespace moehost
