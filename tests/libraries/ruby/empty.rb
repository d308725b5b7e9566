# Sidekiq wants a file to load; the program has loaded itself.
