<?php
// Laravel's cache lock on Redis, logged as Laravel's channels log exceptions.

require_once __DIR__.'/witness.php';
require_once 'Illuminate/Cache/autoload.php';
require_once 'Illuminate/Redis/autoload.php';
require_once 'Illuminate/Container/autoload.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Redis\RedisManager;

$url = parse_url(getenv('REDIS_URL'));
$manager = new RedisManager(new Illuminate\Container\Container(), 'phpredis', [
    'options' => ['prefix' => 'laravel_database_'],
    'default' => ['host' => $url['host'], 'port' => $url['port'], 'database' => 0],
]);
$store = new RedisStore($manager, 'laravel_cache', 'default');
$log = logger('production');

function steal(): void
{
    connection()->set('laravel_database_laravel_cache:'.NAME, str_repeat('f', 16), ['px' => 60000]);
}

function work(RedisStore $store): void
{
    if (SCENARIO === 'release') {
        // Returns false and says nothing.
        $lock = $store->lock(NAME, 60);
        assert($lock->get());
        held('held');
        steal();
        held('taken');
        assert(!$lock->release());
    } elseif (SCENARIO === 'forever') {
        assert($store->lock(NAME)->get());
        held('held');
    } elseif (SCENARIO === 'wait') {
        steal();
        $store->lock(NAME, 60)->block(1, function () {});
    } elseif (SCENARIO === 'previous') {
        steal();
        try {
            $store->lock(NAME, 60)->block(1);
        } catch (LockTimeoutException $error) {
            throw new RuntimeException('Invoice 17 was not booked', 0, $error);
        }
    }
}

$fails = in_array(SCENARIO, ['wait', 'previous']);
if (SETUP === 'uncaught') {
    if ($fails) {
        failed('acquire_failed', 'acquire', 'busy');
    }
    work($store);
} else {
    try {
        work($store);
    } catch (Exception $error) {
        failed('acquire_failed', 'acquire', 'busy');
        // Illuminate\Foundation\Exceptions\Handler::report: the message, and the exception in the context.
        $log->error($error->getMessage(), ['exception' => $error]);
    }
}
