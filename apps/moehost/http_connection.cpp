// Reading requests within limits, routing, and answering.
#include "apps/moehost/http_connection.h"

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

#include "apps/moehost/http_server.h"
#include "core/base/log.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr uint32_t kHeaderBytes = 32 << 10;  // all header lines together
constexpr size_t kHeaderLineBytes = 8 << 10, kHeaderCount = 100;
constexpr uint64_t kBodyBytes = 16 << 20;      // of one request
constexpr uint64_t kAllBodyBytes = 256 << 20;  // of all requests together
constexpr seconds kHeaderTime{10}, kBodyTime{10}, kIdleTime{75}, kWriteTime{30}, kPingTime{10}, kLingerTime{2};
constexpr uint64_t kBodyBytesPerSecond = 1 << 10;  // after kBodyTime
constexpr std::chrono::milliseconds kExpireAgain{100};
constexpr size_t kRequestsPerConnection = 10000;
constexpr size_t kUnreadBytes = 1 << 20;  // of a stream whose client does not read
constexpr size_t kLoggedPathBytes = 200;
constexpr const char* kRetrySeconds = "1";

constexpr auto kAwait = asio::use_awaitable;
auto into(error_code& error) { return asio::redirect_error(kAwait, error); }

// Runs `work` on the pool and comes back to the coroutine's own thread.
template <class Work>
asio::awaitable<void> run_on(asio::thread_pool& pool, Work work) {
  auto start = [&pool, work](auto handler) mutable {
    const auto executor = asio::get_associated_executor(handler);
    // The guard keeps the coroutine's thread from ending for want of work.
    asio::post(pool, [work, guard = asio::make_work_guard(executor), handler = std::move(handler)]() mutable {
      work();
      asio::post(guard.get_executor(), std::move(handler));
    });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(std::move(start), kAwait);
}

// "/v1//models?x=1" is "/v1/models".
std::string path_of(std::string_view target) {
  std::string path;
  for (const char c : target.substr(0, target.find('?')))
    if (c != '/' || path.empty() || path.back() != '/') path += c;
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string host_without_port(std::string_view host) {
  const size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  return std::string(host.starts_with('[') && end != host.npos ? host.substr(1, end - 1) : host.substr(0, end));
}

// Whatever is 503 may be sent again, and says so.
Reply error_reply(const ApiError& error) {
  if (error.status == 503) return {error.status, error_body(error), "Retry-After", kRetrySeconds};
  return {error.status, error_body(error)};
}

}  // namespace

// One request between the engine's thread and its connection. Members are touched by the connections' thread only.
struct Connection::Stream {
  explicit Stream(const asio::any_io_executor& executor) : news(executor) {}
  asio::steady_timer news;  // cancelled when something has come
  std::string text;
  std::optional<Result<GenerateResult>> end;
  std::shared_ptr<GenerationJob> job;
  bool gone = false;  // the client is
};

Connection::Connection(asio::ip::tcp::socket socket, ServerShared& shared)
    : socket_(std::move(socket)), shared_(shared), buffer_(kHeaderBytes + kBodyBytes), expiry_(socket_.get_executor()) {
  error_code error;
  const auto peer = socket_.remote_endpoint(error);
  address_ = error ? "unknown" : peer.address().to_string();
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  shared_.connections.insert(this);
  ++shared_.per_address[address_];
}

Connection::~Connection() {
  shared_.body_bytes -= body_reserved_;
  shared_.connections.erase(this);
  const auto count = shared_.per_address.find(address_);
  if (--count->second == 0) shared_.per_address.erase(count);
}

void Connection::close_if_idle() {
  error_code ignored;
  if (idle_) socket_.close(ignored);
}

void Connection::expire_after(steady_clock::duration time) {
  expired_ = false;
  expiry_.expires_after(time);
  watch_expiry();
}

void Connection::watch_expiry() {
  expiry_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    // A handler that was under way while the timer was set again finds a later expiry.
    if (error || !self || self->expiry_.expiry() > steady_clock::now()) return;
    self->expired_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
    // Work that was between two reads was not cancelled: again, until someone sets the timer anew.
    self->expiry_.expires_after(kExpireAgain);
    self->watch_expiry();
  });
}

void Connection::no_expiry() { expiry_.expires_at(steady_clock::time_point::max()); }

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  for (size_t count = 0; keep_alive_ && count < kRequestsPerConnection; ++count) {
    if (!co_await wait_for_request()) break;
    const auto begin = steady_clock::now();
    Parser parser;
    const auto error = co_await read_request(parser);
    if (!error && !socket_.is_open()) break;
    const Request& request = parser.get();
    keep_alive_ = !error && request.keep_alive() && !shared_.draining && count + 1 < kRequestsPerConnection;
    head_only_ = request.method() == http::verb::head;
    chunked_ = request.version() >= 11;
    const std::optional<Reply> reply = error ? error_reply(*error) : plain_reply(request);
    if (reply) {
      co_await send(*reply);
    } else {
      co_await generate(request);
    }
    shared_.body_bytes -= std::exchange(body_reserved_, 0);
    const std::chrono::duration<double> taken = steady_clock::now() - begin;
    log::info("server", address_, " ", view(request.method_string()), " ",
              path_of(view(request.target())).substr(0, kLoggedPathBytes), " ", status_, " ",
              static_cast<int64_t>(taken.count() * 1000), " ms");
  }
  co_await close_gently();
}

// What a client still sends is read for a moment: closing over unread bytes would destroy the answer on its way.
asio::awaitable<void> Connection::close_gently() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  std::array<char, 4096> unread;
  expire_after(kLingerTime);
  while (!error && !expired_) co_await socket_.async_read_some(asio::buffer(unread), into(error));
  no_expiry();
  socket_.close(error);
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (shared_.draining) co_return false;
  if (buffer_.size() > 0) co_return true;
  error_code error;
  idle_ = true;
  expire_after(kIdleTime);
  co_await socket_.async_wait(asio::ip::tcp::socket::wait_read, into(error));
  idle_ = false;
  co_return !error && socket_.is_open();
}

// Nothing and a closed socket: the client went away before it said anything.
asio::awaitable<std::optional<ApiError>> Connection::read_request(Parser& parser) {
  error_code error;
  parser.header_limit(kHeaderBytes);
  parser.body_limit(kBodyBytes);
  expire_after(kHeaderTime);
  co_await http::async_read_header(socket_, buffer_, parser, into(error));
  if (error == http::error::header_limit)
    co_return ApiError{431, "headers_too_large", cat("the headers are longer than ", kHeaderBytes, " bytes")};
  if (error == http::error::body_limit)
    co_return ApiError{413, "body_too_large", cat("the body is longer than ", kBodyBytes, " bytes")};
  if (error && expired_) co_return ApiError{408, "timeout", "the headers took too long"};
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      (error && error.category() == asio::error::get_system_category())) {
    error_code ignored;
    socket_.close(ignored);
    co_return std::nullopt;
  }
  if (error) co_return ApiError{400, "bad_request", cat("not HTTP: ", error.message())};
  if (auto wrong = check_headers(parser.get())) co_return wrong;
  co_return co_await read_body(parser);
}

std::optional<ApiError> Connection::check_headers(const Request& request) const {
  size_t count = 0;
  for (const auto& field : request) {
    if (++count > kHeaderCount) return ApiError{431, "headers_too_large", cat("more than ", kHeaderCount, " headers")};
    if (field.name_string().size() + field.value().size() > kHeaderLineBytes)
      return ApiError{431, "headers_too_large", cat("a header is longer than ", kHeaderLineBytes, " bytes")};
  }
  // A page of another site must not reach a local server through a name that it made point here.
  if (!shared_.loopback || request.find(http::field::host) == request.end()) return {};
  const std::string host = host_without_port(view(request[http::field::host]));
  if (is_loopback(host) || host == shared_.config.server.host) return {};
  return ApiError{403, "bad_host", "the Host header names another machine than this one"};
}

asio::awaitable<std::optional<ApiError>> Connection::read_body(Parser& parser) {
  if (parser.is_done()) co_return std::nullopt;
  const uint64_t reserve = parser.content_length() ? *parser.content_length() : kBodyBytes;
  if (shared_.body_bytes + reserve > kAllBodyBytes)
    co_return ApiError{503, "overloaded", "too many large requests at once: try again"};
  shared_.body_bytes += body_reserved_ = reserve;
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await write(go_on);
  }
  const auto begin = steady_clock::now();
  while (!parser.is_done()) {
    error_code error;
    const auto allowed = kBodyTime + seconds(parser.get().body().size() / kBodyBytesPerSecond);
    expire_after(begin + allowed - steady_clock::now());
    co_await http::async_read_some(socket_, buffer_, parser, into(error));
    if (error == http::error::body_limit)
      co_return ApiError{413, "body_too_large", cat("the body is longer than ", kBodyBytes, " bytes")};
    if (error && expired_) co_return ApiError{408, "timeout", "the body came too slowly"};
    if (!error) continue;
    socket_.close(error);
    co_return std::nullopt;
  }
  co_return std::nullopt;
}

std::optional<Reply> Connection::plain_reply(const Request& request) const {
  using nlohmann::ordered_json;
  const std::string path = path_of(view(request.target()));
  const bool reading = path == "/health" || path == "/ready" || path == "/v1/models";
  if (!reading && path != "/generate") return error_reply({404, "not_found", cat("no such path: ", printable(path))});
  if (reading ? request.method() != http::verb::get && !head_only_ : request.method() != http::verb::post) {
    const char* allowed = reading ? "GET, HEAD" : "POST";
    return Reply{405, error_body({405, "method_not_allowed", cat(path, " takes ", allowed)}), "Allow", allowed};
  }
  if (path == "/health") {
    const ordered_json body = {{"status", "ok"}, {"model_loaded", shared_.engine != nullptr}};
    return Reply{200, body.dump()};
  }
  if (path == "/v1/models") {
    ordered_json body = {{"object", "list"}, {"data", ordered_json::array()}};
    if (shared_.engine)
      body["data"].push_back({{"id", shared_.model_id},
                              {"object", "model"},
                              {"created", shared_.loaded_at},
                              {"owned_by", "moehost"},
                              {"max_model_len", shared_.engine->max_tokens()}});
    return Reply{200, body.dump()};
  }
  if (!shared_.engine)
    return error_reply(
        {503, "model_loading", cat("the model is being loaded: ", static_cast<int>(shared_.progress * 100), " %")});
  if (path == "/ready") return Reply{200, R"({"status":"ready"})"};
  if (shared_.draining) return error_reply({503, "shutting_down", "the server is shutting down"});
  return std::nullopt;
}

asio::awaitable<void> Connection::generate(const Request& request) {
  ApiRequest parsed;
  std::optional<ApiError> error;
  no_expiry();
  co_await run_on(shared_.pool,
                  [&] { error = parse_generate(request.body(), *shared_.engine, shared_.config, parsed); });
  if (error) {
    const Reply reply = error_reply(*error);
    co_return co_await send(reply);
  }

  const size_t prompt_tokens = parsed.generate.prompt.size();
  const auto stream = std::make_shared<Stream>(socket_.get_executor());
  stream->job = std::make_shared<GenerationJob>();
  stream->job->request = std::move(parsed.generate);
  const auto executor = socket_.get_executor();
  stream->job->on_text = [stream, executor](const std::string& text) {
    asio::post(executor, [stream, text] {
      stream->text += text;
      stream->news.cancel();
    });
  };
  stream->job->on_end = [stream, executor](Result<GenerateResult> result) {
    asio::post(executor, [stream, result = std::move(result)] {
      stream->end = result;
      stream->job = nullptr;  // breaks the circle of stream and job
      stream->news.cancel();
    });
  };
  if (!shared_.queue->submit(stream->job)) {
    stream->job = nullptr;
    const Reply reply = error_reply({503, "queue_full", "too many requests wait: try again later"});
    co_return co_await send(reply);
  }
  watch_for_close(stream);
  if (parsed.stream) {
    co_await send_stream(stream, prompt_tokens);
  } else {
    co_await send_whole(stream, prompt_tokens);
  }
  error_code ignored;
  if (socket_.is_open()) socket_.cancel(ignored);  // the watch
}

// Readable while a request runs: closed by the client, or the next request, which can wait.
void Connection::watch_for_close(const std::shared_ptr<Stream>& stream) {
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this(), stream](const error_code& error) {
    if (error) return;
    char byte;
    const auto got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) return;
    stream->gone = true;
    if (stream->job) self->shared_.queue->cancel(stream->job);
  });
}

asio::awaitable<void> Connection::wait_for_news(Stream& stream) {
  error_code ignored;
  stream.news.expires_after(kPingTime);
  co_await stream.news.async_wait(into(ignored));
}

asio::awaitable<void> Connection::send_whole(const std::shared_ptr<Stream>& stream, size_t prompt_tokens) {
  while (!stream->end) {
    co_await wait_for_news(*stream);
    stream->text.clear();  // the result has all of it
  }
  if (stream->gone) {
    status_ = 499;  // as others log it: the client closed the request
    keep_alive_ = false;
    co_return;
  }
  const auto& result = *stream->end;
  if (!result.ok()) log::error("server", "request failed: ", result.status().message());
  const Reply reply = result.ok() ? Reply{200, answer_body(*result, prompt_tokens, shared_.model_id)}
                                  : error_reply(engine_error(result.status()));
  co_await send(reply);
}

asio::awaitable<void> Connection::send_stream(const std::shared_ptr<Stream>& stream, size_t prompt_tokens) {
  status_ = 200;
  if (!chunked_) keep_alive_ = false;
  std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n";
  if (chunked_) head += "Transfer-Encoding: chunked\r\n";
  head += keep_alive_ ? "\r\n" : "Connection: close\r\n\r\n";
  bool alive = co_await write(head);
  std::string piece;
  while (alive && !stream->gone) {
    if (stream->text.size() > kUnreadBytes) break;
    if (!stream->text.empty()) {
      piece = text_event(std::exchange(stream->text, {}));
    } else if (stream->end) {
      break;
    } else {
      co_await wait_for_news(*stream);
      if (!stream->text.empty() || stream->end) continue;
      piece = ": ping\n\n";
    }
    alive = co_await write_chunk(piece);
  }
  if (!alive || !stream->end || !stream->text.empty()) {
    if (stream->job) shared_.queue->cancel(stream->job);
    keep_alive_ = false;
    co_return;
  }
  const auto& result = *stream->end;
  if (!result.ok()) log::error("server", "request failed: ", result.status().message());
  keep_alive_ = keep_alive_ && result.ok();
  piece =
      result.ok() ? last_events(*result, prompt_tokens, shared_.model_id) : error_event(engine_error(result.status()));
  alive = co_await write_chunk(piece);
  const std::string last_chunk = "0\r\n\r\n";
  if (alive && chunked_) alive = co_await write(last_chunk);
  keep_alive_ = keep_alive_ && alive;
}

asio::awaitable<void> Connection::send(const Reply& reply) {
  status_ = reply.status;
  http::response<http::empty_body> head{static_cast<http::status>(reply.status), 11};
  head.set(http::field::content_type, "application/json");
  head.set(http::field::content_length, std::to_string(reply.body.size()));
  if (reply.header) head.set(reply.header, reply.header_value);
  head.keep_alive(keep_alive_);
  std::string bytes = cat(head.base());
  if (!head_only_) bytes += reply.body;
  const bool alive = co_await write(bytes);
  keep_alive_ = keep_alive_ && alive;
}

asio::awaitable<bool> Connection::write_chunk(const std::string& bytes) {
  if (!chunked_) co_return co_await write(bytes);
  std::ostringstream chunk;
  chunk << std::hex << bytes.size() << "\r\n" << bytes << "\r\n";
  const std::string framed = std::move(chunk).str();
  co_return co_await write(framed);
}

asio::awaitable<bool> Connection::write(const std::string& bytes) {
  error_code error;
  expire_after(kWriteTime);
  co_await asio::async_write(socket_, asio::buffer(bytes), into(error));
  no_expiry();
  co_return !error;
}

}  // namespace moehost
