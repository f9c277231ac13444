// Classifies digit images: java Classify.java libdigits.so digits_weights.bin images.f32, one digit
// per line.  Needs Java 22 or newer (java.lang.foreign).  The functions are declared by hand here;
// `jextract --include-function ... digits.h` writes the same declarations for the whole header.

import java.io.IOException;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

public final class Classify {
    static final AddressLayout POINTER = ValueLayout.ADDRESS;
    static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;  // int64_t and size_t
    static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;  // int and aotc_status
    // of aotc_rt.h: the caller makes room for them and looks into neither
    static final long WEIGHTS_BYTES = 4 * 8, CONTEXT_BYTES = 3 * 8 + 3 * 8 + 2 * 8 + 256;

    /** An opened model; it belongs to the Arena that it is made in. */
    static final class Digits {
        private final Linker linker = Linker.nativeLinker();
        private final SymbolLookup library;
        private final MemorySegment weights, context, arena;
        private final MethodHandle run;

        Digits(Arena scope, String path, String image, long batch) throws Throwable {
            library = SymbolLookup.libraryLookup(Path.of(path), scope);
            weights = scope.allocate(WEIGHTS_BYTES, 8);
            context = scope.allocate(CONTEXT_BYTES, 8);
            long bytes = (long) function("arena_size", LONG, LONG, INT).invokeExact(batch, 1);
            arena = scope.allocate(bytes, 64);
            check((int) function("weights_open", INT, POINTER, POINTER).invokeExact(
                weights, scope.allocateFrom(image)), image);
            check((int) function("init", INT, POINTER, POINTER, POINTER, LONG, POINTER)
                .invokeExact(context, weights, arena, bytes, MemorySegment.NULL), "init");
            run = function("run", INT, POINTER, LONG, POINTER, POINTER, POINTER);
        }

        private MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
            return linker.downcallHandle(library.find("digits_" + name).orElseThrow(),
                FunctionDescriptor.of(result, arguments));
        }

        private void check(int status, String what) throws Throwable {
            if (status != 0) {
                MemorySegment text = (MemorySegment) function("strerror",
                    POINTER.withTargetLayout(MemoryLayout.sequenceLayout(
                        1 << 10, ValueLayout.JAVA_BYTE)), INT).invokeExact(status);
                throw new IOException(what + ": " + text.getString(0));
            }
        }

        /** The digits of images of 64 pixels each, which lie one behind the other. */
        long[] run(float[] images) throws Throwable {
            int batch = images.length / 64;
            try (Arena call = Arena.ofConfined()) {
                MemorySegment logits = call.allocate(ValueLayout.JAVA_FLOAT, 10L * batch);
                MemorySegment digits = call.allocate(LONG, batch);
                check((int) run.invokeExact(context, (long) batch,
                    call.allocateFrom(ValueLayout.JAVA_FLOAT, images), logits, digits), "run");
                return digits.toArray(LONG);
            }
        }
    }

    public static void main(String[] arguments) throws Throwable {
        if (arguments.length != 3) {
            System.err.println("usage: Classify libdigits.so digits_weights.bin images.f32");
            System.exit(2);
        }
        byte[] data = Files.readAllBytes(Path.of(arguments[2]));
        float[] images = new float[data.length / 4];
        java.nio.ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(images);
        try (Arena scope = Arena.ofConfined()) {
            Digits model = new Digits(scope, arguments[0], arguments[1], images.length / 64);
            for (long digit : model.run(images)) {
                System.out.println(digit);
            }
        }
    }
}
