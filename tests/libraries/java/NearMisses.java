import java.util.concurrent.TimeoutException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.concurrent.locks.StampedLock;
import java.util.logging.Level;
import java.util.logging.Logger;

/** The JDK's own locks: what they say sounds like Redisson, and none of it is about Redis. */
class NearMisses {
    private static final Logger LOG = Logger.getLogger("com.example.billing");

    interface Step {
        void run() throws Exception;
    }

    private static void attempt(Step step) {
        try {
            step.run();
        } catch (Exception error) {
            LOG.log(Level.SEVERE, "could not unlock: " + error.getMessage(), error);
        }
    }

    public static void main(String[] arguments) {
        attempt(() -> new ReentrantReadWriteLock().readLock().unlock());
        attempt(() -> new ReentrantReadWriteLock().writeLock().unlock());
        attempt(() -> new ReentrantLock().unlock());
        attempt(() -> new Object().notify());
        attempt(() -> new StampedLock().unlockWrite(17));
        attempt(() -> {
            throw new TimeoutException("lock wait timeout after " + TimeUnit.SECONDS.toMillis(5) + " ms");
        });
        new ReentrantReadWriteLock().readLock().unlock();
    }
}
