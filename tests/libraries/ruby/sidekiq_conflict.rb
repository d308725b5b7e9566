# Sidekiq itself, with a job that raises what sidekiq-unique-jobs raises with `on_conflict: :raise` (its text is from its
# source: the gem cannot be had here). What is real are the records that Sidekiq makes of it, at first and on a retry.
require "digest"
require "redis"
Redis.silence_deprecations = true
require "sidekiq"
require "sidekiq/cli"
require_relative "witness"

module SidekiqUniqueJobs
  class Conflict < RuntimeError
    def initialize(item)
      super("Item with the key: #{item} is already scheduled or processing")
    end
  end
end

DIGEST = "uniquejobs:#{Digest::MD5.hexdigest(NAME)}"

class Book
  include Sidekiq::Worker
  sidekiq_options retry: 1
  sidekiq_retry_in { 0 }

  def perform(_number)
    failed("acquire_failed", "acquire", "busy", "#{DIGEST}:LOCKED")
    raise SidekiqUniqueJobs::Conflict, DIGEST
  end
end

Sidekiq.options[:poll_interval_average] = 1
Sidekiq.redis = { url: ENV.fetch("REDIS_URL") }
Sidekiq.logger.formatter = Sidekiq::Logger::Formatters::JSON.new if SETUP == "json"
Sidekiq.configure_server do |config|
  config.redis = { url: ENV.fetch("REDIS_URL") }
  config.death_handlers << ->(_job, _error) { Thread.new { sleep 0.5; Process.kill("TERM", Process.pid) } }
  config.on(:startup) { Book.perform_async(17) }
end

cli = Sidekiq::CLI.instance
cli.parse(["--require", "#{__dir__}/empty.rb", "--concurrency", "1", "--timeout", "2"])
cli.run
