<?php
// What a program that uses a lock library knows about its own failures, told to whoever runs it: see python/witness.py.

define('SETUP', getenv('SETUP'));
define('SCENARIO', getenv('SCENARIO'));
define('NAME', getenv('LOCK_NAME'));

$witnessOut = fopen('php://fd/'.getenv('WITNESS_OUT'), 'w');
$witnessIn = fopen('php://fd/'.getenv('WITNESS_IN'), 'r');

function tell(array $what): void
{
    global $witnessOut;
    fwrite($witnessOut, json_encode($what)."\n");
    fflush($witnessOut);
}

/** $key only where the library prints it. */
function failed(string $event, ?string $operation, string $reason, ?string $key = null): void
{
    tell(['failed' => ['event' => $event, 'operation' => $operation, 'reason' => $reason, 'lock_key' => $key]]);
}

/** Waits until the keys were looked at. */
function held(string $state): void
{
    global $witnessIn;
    tell(['held' => $state]);
    fread($witnessIn, 1);
}

function connection(): Redis
{
    $url = parse_url(getenv('REDIS_URL'));
    $redis = new Redis();
    $redis->connect($url['host'], $url['port']);

    return $redis;
}

/** A monolog logger as the set-up makes it; `laravel` as Laravel's channels are made. */
function logger(string $channel): Monolog\Logger
{
    require_once 'Monolog/autoload.php';
    $handler = new Monolog\Handler\StreamHandler('php://stderr', Monolog\Logger::DEBUG);
    if (SETUP === 'json') {
        $formatter = new Monolog\Formatter\JsonFormatter();
        $formatter->includeStacktraces();
    } else {
        $formatter = new Monolog\Formatter\LineFormatter(null, 'Y-m-d H:i:s', true, true);
        $formatter->includeStacktraces(SETUP !== 'line');
    }
    $handler->setFormatter($formatter);

    return new Monolog\Logger($channel, [$handler], [new Monolog\Processor\PsrLogMessageProcessor()]);
}
