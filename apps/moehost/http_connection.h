// One HTTP connection as a coroutine, and what it shares with the server. Only http_*.cpp include this. Floor 6.
#pragma once
// clang-format off: Boost 1.74's awaitable.hpp uses std::exchange without its header, which must come first.
#include <utility>
// clang-format on
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "apps/moehost/generate_api.h"
#include "apps/moehost/generation_queue.h"

namespace moehost {

class Connection;

struct Reply {
  unsigned status = 200;
  std::string body;              // JSON
  const char* header = nullptr;  // one more, with its value
  std::string header_value;
};

// Touched by the thread of the connections only, but for the pool and the queue.
struct ServerShared {
  const Config& config;
  std::string model_id;
  bool loopback = true;
  bool draining = false;
  std::atomic<double> progress{0};
  int64_t loaded_at = 0;                   // Unix time
  Engine* engine = nullptr;                // null: still loading
  std::unique_ptr<GenerationQueue> queue;  // with engine
  std::set<Connection*> connections;
  std::map<std::string, size_t> per_address;
  uint64_t body_bytes = 0;           // of all bodies being read or worked on
  boost::asio::thread_pool pool{1};  // parsing and tokenising
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ServerShared& shared);
  ~Connection();
  boost::asio::awaitable<void> run();
  // Ends it if it only waits for a next request.
  void close_if_idle();

 private:
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  using Request = boost::beast::http::request<boost::beast::http::string_body>;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  struct Stream;

  // The socket's work is cancelled when the time is over, unless one of these is called before.
  void expire_after(std::chrono::steady_clock::duration time);
  void no_expiry();
  void watch_expiry();

  Awaitable<bool> wait_for_request();  // false: closed or idle too long
  Awaitable<std::optional<ApiError>> read_request(Parser& parser);
  Awaitable<std::optional<ApiError>> read_body(Parser& parser);
  std::optional<ApiError> check_headers(const Request& request) const;
  std::optional<Reply> plain_reply(const Request& request) const;  // nothing: a /generate to be run
  Awaitable<void> generate(const Request& request);
  Awaitable<void> send_stream(const std::shared_ptr<Stream>& stream, size_t prompt_tokens);
  Awaitable<void> send_whole(const std::shared_ptr<Stream>& stream, size_t prompt_tokens);
  Awaitable<void> send(const Reply& reply);
  Awaitable<void> close_gently();
  // By reference to a named string: GCC 11 and 12 destroy temporaries in the arguments of co_await twice.
  Awaitable<bool> write(const std::string& bytes);        // as they are; false: gone
  Awaitable<bool> write_chunk(const std::string& bytes);  // as a chunk where the client knows chunks
  Awaitable<void> wait_for_news(Stream& stream);
  void watch_for_close(const std::shared_ptr<Stream>& stream);

  boost::asio::ip::tcp::socket socket_;
  ServerShared& shared_;
  std::string address_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer expiry_;
  bool expired_ = false, idle_ = false, keep_alive_ = true, head_only_ = false, chunked_ = true;
  uint64_t body_reserved_ = 0;
  unsigned status_ = 0;  // of the last answer, for the log
};

}  // namespace moehost
