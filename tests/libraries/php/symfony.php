<?php
// Symfony Lock with its RedisStore and the logger that FrameworkBundle gives it.

require_once __DIR__.'/witness.php';
require_once 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

$redis = connection();
$factory = new LockFactory(new RedisStore($redis));
$factory->setLogger(logger('lock'));
$app = logger('app');

/** At once, as the store's own script does it. */
function steal(Redis $redis): void
{
    $score = (int) (microtime(true) * 1000) + 60000;
    $redis->multi()->del(NAME)->zAdd(NAME, $score, '__write__')->zAdd(NAME, $score, str_repeat('f', 44))->pExpire(NAME, 60000)->exec();
}

function work(): void
{
    global $redis, $factory;
    if (SCENARIO === 'wait') {
        // Logged at INFO by the library; `acquire` returns false.
        steal($redis);
        assert(!$factory->createLock(NAME, 60)->acquire());
        failed('acquire_failed', 'acquire', 'busy', NAME);

        return;
    }
    $lock = $factory->createLock(NAME, 60);
    assert($lock->acquire());
    held('held');
    steal($redis);
    held('taken');
    if (SCENARIO === 'refresh') {
        $lock->refresh();
    } elseif (SCENARIO === 'release') {
        // Someone else has it: the store leaves it alone and says nothing.
        $lock->release();
    }
}

if (SETUP === 'uncaught') {
    if (SCENARIO === 'refresh') {
        failed('renewal_failed', 'renew', 'not_owned', NAME);
    }
    work();
} else {
    try {
        work();
    } catch (LockConflictedException $error) {
        failed('renewal_failed', 'renew', 'not_owned', NAME);
        if (SETUP !== 'line') {
            // The program logs what it caught as well: the message is empty, the class is all there is.
            $app->error('Invoice 17 was not booked', ['exception' => $error]);
        }
    }
}
