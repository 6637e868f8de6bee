package ottla;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkFiles;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskInterruptListener;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ApplyFunctionExpression;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner;
import org.apache.spark.sql.execution.streaming.RealTimeTrigger;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;
import org.apache.spark.sql.execution.streaming.operators.stateful.StreamingDeduplicateWithinWatermarkExec;
import org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The part of format("ottla") that Spark has no Python interface for: real-time mode and the update output mode.
 *
 * Spark looks for the class "ottla.DefaultSource" before it looks for a Python data source named "ottla". This one
 * passes batch queries and micro-batches on to the Python data source. In real-time mode, each task reads and writes
 * through Python processes that hold the Kafka clients (ottla.spark.realtime.source_end and sink_end). Frames on
 * their standard input and output are [int length of the rest][byte kind][body]; rows are Arrow IPC messages.
 *
 * Janino compiles this file: no lambdas, no generics, and one name per compilation unit.
 */
public class DefaultSource extends PythonDataSourceV2 {
  /** Hash of this file, of the Spark version and of the protocol; see jvm_part.py. */
  public static final String FINGERPRINT = "@FINGERPRINT@";

  static final String NAME = "ottla";
  static final String START_OVERRIDES = "\u2190";
  static final String REAL_TIME_OPTION = "_realTime";
  static final String INITIAL_OFFSET_FILE = "realtime-initial-offset";
  static final String[] MICRO_BATCH_OPTIONS = {
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
  };
  static final long IDLE_PROCESS_MS = 15000;
  static final long INTERRUPT_CHECK_MS = 100;
  static final int QUEUED_FRAMES = 16;
  static final int MAX_BUFFERED_ROWS = 8192;
  static final ObjectMapper JSON = new ObjectMapper();

  // Janino does not see that these methods return a JsonNode.
  static JsonNode tree(String json) throws IOException {
    return (JsonNode) JSON.readTree(json);
  }

  static JsonNode at(JsonNode offsets, String topic, String partition) {
    return (JsonNode) ((JsonNode) offsets.path(topic)).path(partition);
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new TopicTable(this, schema);
  }

  static class TopicTable extends PythonTable {
    final PythonDataSourceV2 source;
    final StructType columns;

    TopicTable(PythonDataSourceV2 source, StructType columns) {
      super(source, NAME, columns);
      this.source = source;
      this.columns = columns;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new TopicScanBuilder(source, columns, options);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new TopicWriteBuilder(source, info);
    }
  }

  // ------------------------------------------------------------------------------------------ source, on the driver

  static class TopicScanBuilder extends PythonScanBuilder {
    final PythonDataSourceV2 source;
    final StructType columns;
    final CaseInsensitiveStringMap options;

    TopicScanBuilder(PythonDataSourceV2 source, StructType columns, CaseInsensitiveStringMap options) {
      super(source, NAME, columns, options);
      this.source = source;
      this.columns = columns;
      this.options = options;
    }

    public Scan build() {
      return new TopicScan(source, columns, options, pushedFilters());
    }
  }

  static class TopicScan extends PythonScan {
    final PythonDataSourceV2 source;
    final StructType columns;
    final CaseInsensitiveStringMap options;

    TopicScan(PythonDataSourceV2 source, StructType columns, CaseInsensitiveStringMap options, Filter[] filters) {
      super(source, NAME, columns, options, filters);
      this.source = source;
      this.columns = columns;
      this.options = options;
    }

    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      PythonStreamingSourceRunner runner =
          PythonMicroBatchStream.createPythonStreamingSourceRunner(source, NAME, columns, options);
      runner.init();
      return new TopicStream(source, columns, options, runner, checkpointLocation);
    }
  }

  static class TopicStream extends PythonMicroBatchStreamWithTriggerAvailableNow implements SupportsRealTimeMode {
    final PythonDataSourceV2 source;
    final StructType columns;
    final CaseInsensitiveStringMap options;
    final PythonStreamingSourceRunner planner;
    final String checkpointLocation;
    /** Name of this run of the query: its batches share processes. */
    final String run = UUID.randomUUID().toString();
    boolean isRealTime = false;
    String latest = null;

    TopicStream(PythonDataSourceV2 source, StructType columns, CaseInsensitiveStringMap options,
        PythonStreamingSourceRunner planner, String checkpointLocation) {
      super(source, NAME, columns, options, planner);
      this.source = source;
      this.columns = columns;
      this.options = options;
      this.planner = planner;
      this.checkpointLocation = checkpointLocation;
    }

    public void prepareForRealTimeMode() {
      for (int i = 0; i < MICRO_BATCH_OPTIONS.length; i++) {
        if (options.containsKey(MICRO_BATCH_OPTIONS[i])) {
          throw new IllegalArgumentException("The option " + MICRO_BATCH_OPTIONS[i]
              + " applies to micro-batches only. Remove it, or remove trigger(realTime=...).");
        }
      }
      isRealTime = true;
    }

    /** The start of a new query is stored at once: Spark stores the offsets of a real-time batch when it has ended. */
    public Offset initialOffset() {
      if (!isRealTime) return super.initialOffset();
      try {
        Path folder = new Path(checkpointLocation);
        Path file = new Path(folder, INITIAL_OFFSET_FILE);
        CheckpointFileManager files = (CheckpointFileManager) CheckpointFileManager$.MODULE$.create(
            folder, SparkSession.active().sessionState().newHadoopConf());
        if (files.exists(file)) {
          InputStream in = files.open(file);
          try {
            return new PythonStreamingSourceOffset(new String(in.readAllBytes(), StandardCharsets.UTF_8));
          } finally {
            in.close();
          }
        }
        Offset initial = super.initialOffset();
        if (!files.exists(folder)) files.mkdirs(folder);
        OutputStream out = files.createAtomic(file, true);
        out.write(initial.json().getBytes(StandardCharsets.UTF_8));
        out.close();
        return initial;
      } catch (IOException error) {
        throw new RuntimeException(error);
      }
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      Offset found = super.latestOffset(start, limit);
      latest = found.json();
      return found;
    }

    public InputPartition[] planInputPartitions(Offset start) {
      planner.partitions(start.json(), latest);  // raises if records were lost
      try {
        JsonNode from = tree(start.json());
        JsonNode known = tree(latest);
        JsonNode moved = (JsonNode) known.path(START_OVERRIDES);
        List planned = new ArrayList();
        for (Iterator topics = known.fieldNames(); topics.hasNext(); ) {
          String topic = (String) topics.next();
          if (topic.equals(START_OVERRIDES)) continue;
          for (Iterator numbers = ((JsonNode) known.path(topic)).fieldNames(); numbers.hasNext(); ) {
            String number = (String) numbers.next();
            JsonNode offset = at(moved, topic, number);
            if (offset.isMissingNode()) offset = at(from, topic, number);
            planned.add(new PartitionStart(topic, Integer.parseInt(number), offset.asLong(0L)));
          }
        }
        checkCores(planned.size());
        return (InputPartition[]) planned.toArray(new InputPartition[planned.size()]);
      } catch (IOException error) {
        throw new RuntimeException(error);
      }
    }

    /** A partition without a core of its own would be read in the next batch only, minutes later. */
    void checkCores(int partitions) {
      SparkContext context = SparkSession.active().sparkContext();
      int cores = context.defaultParallelism();
      if (context.isLocal() && partitions > cores) {
        throw new IllegalArgumentException("A real-time query needs a core for each partition that it reads: "
            + partitions + " partitions, " + cores + " cores. Start Spark with the master local["
            + (partitions + 1) + "] or more; cores that wait cost nothing.");
      }
    }

    public Offset mergeOffsets(PartitionOffset[] offsets) {
      TreeMap topics = new TreeMap();
      for (int i = 0; i < offsets.length; i++) {
        PartitionEnd end = (PartitionEnd) offsets[i];
        if (!topics.containsKey(end.topic)) topics.put(end.topic, new TreeMap());
        ((TreeMap) topics.get(end.topic)).put(Integer.valueOf(end.partition), Long.valueOf(end.offset));
      }
      ObjectNode merged = JSON.createObjectNode();
      for (Iterator each = topics.keySet().iterator(); each.hasNext(); ) {
        String topic = (String) each.next();
        ObjectNode ends = merged.putObject(topic);
        TreeMap partitions = (TreeMap) topics.get(topic);
        for (Iterator numbers = partitions.keySet().iterator(); numbers.hasNext(); ) {
          Integer number = (Integer) numbers.next();
          ends.put(number.toString(), ((Long) partitions.get(number)).longValue());
        }
      }
      return new PythonStreamingSourceOffset(merged.toString());
    }

    public PartitionReaderFactory createReaderFactory() {
      if (!isRealTime) return super.createReaderFactory();
      return new RealTimeReaderFactory(
          new PythonProgram("ottla.spark.realtime.source_end", source, options, columns, run));
    }
  }

  static class PartitionStart implements InputPartition {
    final String topic;
    final int partition;
    final long offset;

    PartitionStart(String topic, int partition, long offset) {
      this.topic = topic;
      this.partition = partition;
      this.offset = offset;
    }
  }

  static class PartitionEnd implements PartitionOffset {
    final String topic;
    final int partition;
    final long offset;

    PartitionEnd(String topic, int partition, long offset) {
      this.topic = topic;
      this.partition = partition;
      this.offset = offset;
    }
  }

  // -------------------------------------------------------------------------------------------- sink, on the driver

  static class TopicWriteBuilder extends PythonWriteBuilder implements SupportsStreamingUpdateAsAppend {
    final PythonDataSourceV2 source;
    final LogicalWriteInfo info;
    boolean isTruncate = false;

    TopicWriteBuilder(PythonDataSourceV2 source, LogicalWriteInfo info) {
      super(source, NAME, info);
      this.source = source;
      this.info = info;
    }

    public WriteBuilder truncate() {
      isTruncate = true;
      return this;
    }

    public Write build() {
      return new TopicWrite(source, info, isTruncate);
    }
  }

  static class TopicWrite extends PythonWrite {
    final PythonDataSourceV2 source;
    final LogicalWriteInfo info;

    TopicWrite(PythonDataSourceV2 source, LogicalWriteInfo info, boolean isTruncate) {
      super(source, NAME, info, isTruncate);
      this.source = source;
      this.info = info;
    }

    public StreamingWrite toStreaming() {
      StreamExecution query = (StreamExecution) SparkSession.active().sharedState().activeStreamingQueries()
          .get(UUID.fromString(info.queryId()));
      if (query != null && query.trigger() instanceof RealTimeTrigger) return new RealTimeWrite(source, info, query);
      return super.toStreaming();
    }
  }

  static class RealTimeWrite implements StreamingWrite {
    final PythonDataSourceV2 source;
    final LogicalWriteInfo info;
    final StreamExecution query;

    RealTimeWrite(PythonDataSourceV2 source, LogicalWriteInfo info, StreamExecution query) {
      this.source = source;
      this.info = info;
      this.query = query;
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
      // Spark's own check also refuses sinks that it does not know, so sessions turn it off.
      SparkPlan plan = Operators.withoutPermitted(query.lastExecution().executedPlan());
      RealTimeModeAllowlist.checkAllowedPhysicalOperator(plan, true);
      HashMap options = new HashMap(info.options().asCaseSensitiveMap());
      options.put(REAL_TIME_OPTION, "true");
      CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(options);
      source.source().createWriteInfoInPython(NAME, info.schema(), all, false, true);  // raises on invalid options
      return new RealTimeWriterFactory(
          new PythonProgram("ottla.spark.realtime.sink_end", source, all, info.schema(), query.runId().toString()));
    }

    public void commit(long epoch, WriterCommitMessage[] messages) {}

    public void abort(long epoch, WriterCommitMessage[] messages) {}
  }

  static class RowsFlushed implements WriterCommitMessage {}

  static class Operators {
    /**
     * Return the plan without dropDuplicatesWithinWatermark, which is missing in Spark's list of operators.
     * It passes on each row as it arrives, as dropDuplicates does, which is in the list: both extend the same operator.
     */
    static SparkPlan withoutPermitted(SparkPlan plan) {
      ArrayList children = new ArrayList();
      boolean isChanged = false;
      for (scala.collection.Iterator each = plan.children().iterator(); each.hasNext(); ) {
        SparkPlan child = (SparkPlan) each.next();
        SparkPlan kept = withoutPermitted(child);
        children.add(kept);
        isChanged |= kept != child;
      }
      if (plan instanceof StreamingDeduplicateWithinWatermarkExec) return (SparkPlan) children.get(0);
      return isChanged ? (SparkPlan) plan.withNewChildren(PythonUtils.toSeq(children)) : plan;
    }
  }

  // --------------------------------------------------------------------------------------- processes, on executors

  /** Program of a Python process, its environment, and the first frame that it gets. */
  static class PythonProgram implements Serializable {
    final String module;
    final String python;
    final HashMap environment;
    final ArrayList includes;
    final String options;
    final StructType columns;
    final String key;

    PythonProgram(String module, String python, Map environment, List includes) {
      this.module = module;
      this.python = python;
      this.environment = new HashMap(environment);
      this.includes = new ArrayList(includes);
      this.options = "{}";
      this.columns = new StructType();
      this.key = module + " " + python + " " + this.environment;
    }

    PythonProgram(String module, PythonDataSourceV2 source, CaseInsensitiveStringMap options, StructType columns,
        String run) {
      PythonFunction function = source.source().dataSourceCls();
      this.module = module;
      this.python = function.pythonExec();
      this.environment = new HashMap(function.envVars());
      this.includes = new ArrayList(function.pythonIncludes());
      ObjectNode values = JSON.createObjectNode();
      for (Iterator each = new TreeMap(options.asCaseSensitiveMap()).entrySet().iterator(); each.hasNext(); ) {
        Map.Entry entry = (Map.Entry) each.next();
        values.put((String) entry.getKey(), (String) entry.getValue());
      }
      this.columns = columns;
      this.key = module + " " + run;
      this.options = needsProfile(options) ? withProfile(values.toString()) : values.toString();
    }

    PythonProgram(PythonProgram other, String module, String options) {
      this.module = module;
      this.python = other.python;
      this.environment = other.environment;
      this.includes = other.includes;
      this.options = options;
      this.columns = other.columns;
      this.key = module;
    }

    /** Return whether the driver has properties of the connection that executors do not have. */
    static boolean needsProfile(CaseInsensitiveStringMap options) {
      String named = System.getenv("OTTLA_PROFILE");
      return options.containsKey("profile") || !options.containsKey("kafka.bootstrap.servers")
          || (named != null && named.length() > 0);
    }

    /** Return the options with the properties of the profile, which only the driver can read. */
    String withProfile(String options) {
      String known = (String) PROFILES.get(key);
      if (known != null) return known;
      try {
        PythonProcess process =
            new PythonProcess(new PythonProgram(this, "ottla.spark.realtime.profile_end", options));
        try {
          byte[] frame = process.poll(PROFILE_TIMEOUT_MS);
          if (frame == null) throw new IOException("Reading the profile of the query took too long.");
          String found = new String(frame, 1, frame.length - 1, StandardCharsets.UTF_8);
          if (PROFILES.size() >= MAX_PROFILES) PROFILES.clear();
          PROFILES.put(key, found);
          return found;
        } finally {
          process.end();
        }
      } catch (IOException error) {
        throw new RuntimeException(error.getMessage(), error);
      }
    }

    /** Options with the profile's properties by query and module, so that each batch has them at once. */
    static final ConcurrentHashMap PROFILES = new ConcurrentHashMap();
    static final int MAX_PROFILES = 100;
    static final long PROFILE_TIMEOUT_MS = 60000L;

    byte[] firstFrame() throws IOException {
      ObjectNode made = JSON.createObjectNode();
      made.set("options", tree(options));
      ArrayNode path = made.putArray("path");
      String folder = SparkFiles.getRootDirectory();
      path.add(folder);
      for (int i = 0; i < includes.size(); i++) path.add(new File(folder, (String) includes.get(i)).getPath());
      made.put("columns", columns.json());
      return made.toString().getBytes(StandardCharsets.UTF_8);
    }
  }

  /** Idle processes, kept over batches. A thread ends those that are not used again. */
  static class Pool {
    static final HashMap IDLE = new HashMap();
    static Thread cleaner = null;

    static PythonProcess take(String key) {
      synchronized (IDLE) {
        ArrayDeque waiting = (ArrayDeque) IDLE.get(key);
        while (waiting != null && !waiting.isEmpty()) {
          PythonProcess found = (PythonProcess) waiting.pollLast();
          if (found.isUsable()) return found;
          found.end();
        }
        return null;
      }
    }

    static void give(String key, PythonProcess process) {
      synchronized (IDLE) {
        process.idleSince = System.currentTimeMillis();
        ArrayDeque waiting = (ArrayDeque) IDLE.get(key);
        if (waiting == null) {
          waiting = new ArrayDeque();
          IDLE.put(key, waiting);
        }
        waiting.addLast(process);
        if (cleaner == null) {
          cleaner = new Thread(new Cleaner(), "ottla-python-processes");
          cleaner.setDaemon(true);
          cleaner.start();
        }
      }
    }

    /** End processes that have been idle for too long; return whether any are left. */
    static boolean endIdle() {
      ArrayList old = new ArrayList();
      synchronized (IDLE) {
        long limit = System.currentTimeMillis() - IDLE_PROCESS_MS;
        for (Iterator queues = IDLE.values().iterator(); queues.hasNext(); ) {
          ArrayDeque waiting = (ArrayDeque) queues.next();
          while (!waiting.isEmpty() && ((PythonProcess) waiting.peekFirst()).idleSince < limit) {
            old.add(waiting.pollFirst());
          }
          if (waiting.isEmpty()) queues.remove();
        }
        if (IDLE.isEmpty()) cleaner = null;
      }
      for (int i = 0; i < old.size(); i++) ((PythonProcess) old.get(i)).end();
      synchronized (IDLE) {
        return cleaner == Thread.currentThread();
      }
    }
  }

  static class Cleaner implements Runnable {
    public void run() {
      try {
        do {
          Thread.sleep(IDLE_PROCESS_MS / 4);
        } while (Pool.endIdle());
      } catch (InterruptedException stopped) {
        return;
      }
    }
  }

  /** A Python process and, unless the task reads the frames itself, a thread that reads them. */
  static class PythonProcess implements Runnable {
    static final byte[] END = new byte[0];
    final Process process;
    final DataOutputStream out;
    final DataInputStream in;
    final ArrayBlockingQueue frames = new ArrayBlockingQueue(QUEUED_FRAMES);
    volatile boolean isEnded = false;
    volatile boolean isFailed = false;
    long idleSince;

    PythonProcess(PythonProgram program) throws IOException {
      this(program, true);
    }

    PythonProcess(PythonProgram program, boolean hasThread) throws IOException {
      ArrayList command = new ArrayList();
      command.add(program.python);
      command.add("-m");
      command.add(program.module);
      ProcessBuilder builder = new ProcessBuilder(command);
      Map environment = builder.environment();
      String inherited = (String) environment.get("PYTHONPATH");
      environment.putAll(program.environment);
      String path = PythonUtils.sparkPythonPath();
      String given = (String) program.environment.get("PYTHONPATH");
      if (given != null && given.length() > 0) path = path + File.pathSeparator + given;
      if (inherited != null && inherited.length() > 0) path = path + File.pathSeparator + inherited;
      environment.put("PYTHONPATH", path);
      builder.redirectError(ProcessBuilder.Redirect.INHERIT);
      process = builder.start();
      out = new DataOutputStream(new BufferedOutputStream(process.getOutputStream(), 1 << 16));
      in = new DataInputStream(new BufferedInputStream(process.getInputStream(), 1 << 16));
      if (hasThread) {
        Thread reader = new Thread(this, "ottla-frames-" + process.pid());
        reader.setDaemon(true);
        reader.start();
      }
      send('I', program.firstFrame());
    }

    public void run() {
      try {
        while (!isEnded) queue(read());
      } catch (IOException closed) {
        queue(END);
      }
    }

    byte[] read() throws IOException {
      byte[] frame = new byte[in.readInt()];
      in.readFully(frame);
      return frame;
    }

    void queue(byte[] frame) {
      try {
        while (!isEnded && !frames.offer(frame, 1L, TimeUnit.SECONDS)) { }
      } catch (InterruptedException stopped) {
        isEnded = true;
      }
    }

    void send(int kind, byte[] body) throws IOException {
      try {
        synchronized (out) {
          out.writeInt(body.length + 1);
          out.writeByte(kind);
          out.write(body);
          out.flush();
        }
      } catch (IOException broken) {
        throw failure();
      }
    }

    /** Return the next frame, or null after the timeout. */
    byte[] poll(long timeoutMs) throws IOException {
      long deadline = System.nanoTime() + timeoutMs * 1000000L;
      try {
        while (true) {
          long left = deadline - System.nanoTime();
          byte[] frame = (byte[]) frames.poll(
              Math.max(0L, Math.min(left, INTERRUPT_CHECK_MS * 1000000L)), TimeUnit.NANOSECONDS);
          if (frame != null) {
            if (frame.length == 0) throw failure();
            if (frame[0] == 'E') throw reported(frame);
            return frame;
          }
          TaskContext task = TaskContext.get();
          if (task != null) task.killTaskIfInterrupted();
          if (left <= 0) return null;
        }
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new IOException("The task was interrupted.");
      }
    }

    /** Raise the error that the process has reported, if any. */
    void check() throws IOException {
      byte[] frame = (byte[]) frames.peek();
      if (frame == null) return;
      if (frame.length == 0) throw failure();
      if (frame[0] == 'E') throw reported(frame);
    }

    IOException reported(byte[] frame) {
      isFailed = true;
      return new IOException(
          "A Python process of a real-time query failed:\n" + new String(frame, 1, frame.length - 1, StandardCharsets.UTF_8));
    }

    IOException failure() {
      isFailed = true;
      for (Iterator each = frames.iterator(); each.hasNext(); ) {
        byte[] frame = (byte[]) each.next();
        if (frame.length > 0 && frame[0] == 'E') return reported(frame);
      }
      String code = "";
      try {
        if (process.waitFor(1L, TimeUnit.SECONDS)) code = " (exit code " + process.exitValue() + ")";
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
      return new IOException("Python worker exited unexpectedly" + code + " in a real-time query.");
    }

    boolean isUsable() {
      return !isEnded && !isFailed && process.isAlive();
    }

    /** Close the pipes, so that the process ends by itself, and kill it if it does not. */
    void end() {
      isEnded = true;
      frames.clear();
      try {
        process.getOutputStream().close();
      } catch (IOException closed) {
        isFailed = true;
      }
      process.destroy();
    }
  }

  // ---------------------------------------------------------------------------------------- source, on executors

  /** Input stream over the Arrow message of one frame at a time. */
  static class FrameInput extends InputStream {
    byte[] frame = PythonProcess.END;
    int at = 0;

    void set(byte[] frame, int at) {
      this.frame = frame;
      this.at = at;
    }

    public int read() {
      return at < frame.length ? frame[at++] & 0xff : -1;
    }

    public int read(byte[] into, int from, int length) {
      if (at >= frame.length) return -1;
      int size = Math.min(length, frame.length - at);
      System.arraycopy(frame, at, into, from, size);
      at += size;
      return size;
    }
  }

  /** A process that reads one partition. It continues where the last batch ended if the next one starts there. */
  static class SourceProcess extends PythonProcess {
    final FrameInput message = new FrameInput();
    final BufferAllocator allocator;
    ArrowStreamReader reader = null;
    VectorSchemaRoot root;
    BigIntVector nextOffsets;
    ColumnarBatch rows;
    int generation = 0;
    int at = 0;
    int count = 0;
    long position = -1;
    long positionAfter = -1;

    SourceProcess(PythonProgram program) throws IOException {
      super(program);
      allocator = ArrowUtils.rootAllocator().newChildAllocator("ottla-real-time", 0L, Long.MAX_VALUE);
    }

    void seek(PartitionStart start) throws IOException {
      if (position == start.offset) return;
      generation++;
      at = 0;
      count = 0;
      position = start.offset;
      positionAfter = start.offset;
      byte[] topic = start.topic.getBytes(StandardCharsets.UTF_8);
      ByteBuffer body = ByteBuffer.allocate(16 + topic.length);
      body.putInt(generation).putLong(start.offset).putInt(start.partition).put(topic);
      send('R', body.array());
    }

    boolean next(long timeoutMs) throws IOException {
      long deadline = System.nanoTime() + timeoutMs * 1000000L;
      while (at >= count) {
        byte[] frame = poll(Math.max(0L, (deadline - System.nanoTime()) / 1000000L));
        if (frame == null) return false;
        accept(frame);
      }
      position = at + 1 < count ? nextOffsets.get(at) : positionAfter;
      at++;
      return true;
    }

    void accept(byte[] frame) throws IOException {
      if (frame[0] == 'S') {
        message.set(frame, 1);
        reader = new ArrowStreamReader(message, allocator);
        root = reader.getVectorSchemaRoot();
        int last = root.getFieldVectors().size() - 1;
        ColumnVector[] columns = new ColumnVector[last];
        for (int i = 0; i < last; i++) columns[i] = new ArrowColumnVector(root.getVector(i));
        nextOffsets = (BigIntVector) root.getVector(last);
        rows = new ColumnarBatch(columns);
        return;
      }
      ByteBuffer head = ByteBuffer.wrap(frame, 1, 12);
      if (head.getInt() != generation) return;  // fetched before the last seek
      positionAfter = head.getLong();
      if (frame[0] == 'P') {
        position = positionAfter;
        return;
      }
      message.set(frame, 13);
      reader.loadNextBatch();
      count = root.getRowCount();
      rows.setNumRows(count);
      at = 0;
    }

    InternalRow row() {
      return rows.getRow(at - 1);
    }

    void end() {
      super.end();
      try {
        if (reader != null) reader.close();
        allocator.close();
      } catch (IOException closed) {
        isFailed = true;
      }
    }
  }

  static class RealTimeReaderFactory implements PartitionReaderFactory {
    final PythonProgram program;

    RealTimeReaderFactory(PythonProgram program) {
      this.program = program;
    }

    public PartitionReader createReader(InputPartition partition) {
      try {
        return new RealTimeReader(program, (PartitionStart) partition);
      } catch (IOException error) {
        throw new RuntimeException(error.getMessage(), error);
      }
    }
  }

  static class RealTimeReader implements SupportsRealTimeRead {
    final PartitionStart start;
    final String key;
    final SourceProcess process;

    RealTimeReader(PythonProgram program, PartitionStart start) throws IOException {
      this.start = start;
      key = program.key + " " + start.topic + " " + start.partition;
      PythonProcess waiting = Pool.take(key);
      process = waiting != null ? (SourceProcess) waiting : new SourceProcess(program);
      process.seek(start);
    }

    public PartitionOffset getOffset() {
      return new PartitionEnd(start.topic, start.partition, process.position);
    }

    public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
      return SupportsRealTimeRead.RecordStatus.newStatusWithoutArrivalTime(process.next(timeoutMs.longValue()));
    }

    public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long nowMs, Long timeoutMs) throws IOException {
      return nextWithTimeout(timeoutMs);
    }

    public boolean next() {
      throw new UnsupportedOperationException("A real-time reader is read with a timeout.");
    }

    public Object get() {
      return process.row();
    }

    public void close() {
      TaskContext task = TaskContext.get();
      boolean isStopped = task != null && task.isInterrupted();
      if (process.isUsable() && !isStopped) Pool.give(key, process);
      else process.end();
    }
  }

  // ------------------------------------------------------------------------------------------ sink, on executors

  /** A process that writes rows. Rows that arrive while others are sent travel together. */
  static class SinkProcess extends PythonProcess {
    final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    final ArrowWriter rows;
    final ArrowStreamWriter stream;
    int count = 0;
    int flushes = 0;
    boolean isSending = false;
    IOException broken = null;

    SinkProcess(PythonProgram program) throws IOException {
      super(program);
      rows = ArrowWriter.create(program.columns, "UTC", true, false);
      stream = new ArrowStreamWriter(rows.root(), null, bytes);
      stream.start();
      send('S', bytes.toByteArray());
      bytes.reset();
      Thread sender = new Thread(new Sender(this), "ottla-sender-" + process.pid());
      sender.setDaemon(true);
      sender.start();
    }

    synchronized void write(InternalRow row) throws IOException {
      try {
        while (count >= MAX_BUFFERED_ROWS && broken == null) wait();
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new IOException("The task was interrupted.");
      }
      if (broken != null) throw broken;
      check();
      rows.write(row);
      count++;
      if (!isSending) notifyAll();
    }

    /** Send rows until the process ends. */
    void sendAll() {
      try {
        while (true) {
          byte[] frame;
          synchronized (this) {
            isSending = false;
            notifyAll();
            while (count == 0 && !isEnded) wait();
            if (isEnded) return;
            isSending = true;
            rows.finish();
            stream.writeBatch();
            frame = bytes.toByteArray();
            bytes.reset();
            rows.reset();
            count = 0;
            notifyAll();
          }
          send('B', frame);
        }
      } catch (InterruptedException stopped) {
        isEnded = true;
      } catch (IOException error) {
        broken = error;
      } finally {
        synchronized (this) {
          if (broken == null) broken = new IOException("The process has ended.");
          isSending = false;
          rows.root().close();
          notifyAll();
        }
      }
    }

    /** Wait until the brokers have acknowledged every row. */
    void flush() throws IOException {
      synchronized (this) {
        try {
          while ((count > 0 || isSending) && broken == null) wait();
        } catch (InterruptedException stopped) {
          Thread.currentThread().interrupt();
          throw new IOException("The task was interrupted.");
        }
        if (broken != null) throw broken;
      }
      flushes++;
      send('F', ByteBuffer.allocate(4).putInt(flushes).array());
      byte[] frame = poll(Long.MAX_VALUE / 4000000L);
      if (frame == null || frame[0] != 'A' || ByteBuffer.wrap(frame, 1, 4).getInt() != flushes) throw failure();
    }

    void end() {
      super.end();
      synchronized (this) {
        notifyAll();
      }
    }
  }

  static class Sender implements Runnable {
    final SinkProcess process;

    Sender(SinkProcess process) {
      this.process = process;
    }

    public void run() {
      process.sendAll();
    }
  }

  static class RealTimeWriterFactory implements StreamingDataWriterFactory {
    final PythonProgram program;

    RealTimeWriterFactory(PythonProgram program) {
      this.program = program;
    }

    public DataWriter createWriter(int partition, long task, long epoch) {
      try {
        return new RealTimeWriter(program);
      } catch (IOException error) {
        throw new RuntimeException(error.getMessage(), error);
      }
    }
  }

  static class RealTimeWriter implements DataWriter {
    final String key;
    final SinkProcess process;
    boolean isFlushed = false;

    RealTimeWriter(PythonProgram program) throws IOException {
      key = program.key;
      PythonProcess waiting = Pool.take(key);
      process = waiting != null ? (SinkProcess) waiting : new SinkProcess(program);
    }

    public void write(Object row) throws IOException {
      process.write((InternalRow) row);
    }

    public WriterCommitMessage commit() throws IOException {
      process.flush();
      isFlushed = true;
      return new RowsFlushed();
    }

    public void abort() {}

    public void close() {
      if (isFlushed && process.isUsable()) Pool.give(key, process);
      else process.end();
    }
  }

  // ------------------------------------------------------------------------------------------ Python functions

  /**
   * Return a column that calls a Python function for each row, without waiting for others. Spark's own columns of
   * Python functions collect rows into batches, which in real-time mode end with the batch only.
   */
  public static Column functionColumn(String name, byte[] pickled, String inputs, String result, List columns,
      String python, Map environment, List includes) {
    PythonProgram program = new PythonProgram("ottla.spark.realtime.function_end", python, environment, includes);
    ArrayList children = new ArrayList();
    for (int i = 0; i < columns.size(); i++) children.add(ExpressionUtils.expression((Column) columns.get(i)));
    PythonCall call = new PythonCall(
        name, pickled, (StructType) DataType.fromJson(inputs), DataType.fromJson(result), program);
    return ExpressionUtils.column(new ApplyFunctionExpression(call, PythonUtils.toSeq(children)));
  }

  static class PythonCall implements ScalarFunction, Serializable {
    final String name;
    final String key = UUID.randomUUID().toString();
    final byte[] pickled;
    final StructType inputs;
    final DataType result;
    final PythonProgram program;
    transient FunctionProcess process;

    PythonCall(String name, byte[] pickled, StructType inputs, DataType result, PythonProgram program) {
      this.name = name;
      this.pickled = pickled;
      this.inputs = inputs;
      this.result = result;
      this.program = program;
    }

    public String name() {
      return name;
    }

    public String canonicalName() {
      return "ottla." + key;
    }

    public DataType[] inputTypes() {
      DataType[] types = new DataType[inputs.fields().length];
      for (int i = 0; i < types.length; i++) types[i] = inputs.fields()[i].dataType();
      return types;
    }

    public DataType resultType() {
      return result;
    }

    public boolean isDeterministic() {
      return false;  // else Spark would call the function again for each use of its result
    }

    public Object produceResult(InternalRow row) {
      try {
        if (process == null) process = FunctionProcess.ofTask(program);
        return process.call(this, row);
      } catch (IOException error) {
        throw new RuntimeException(error.getMessage(), error);
      }
    }
  }

  /** A function that a process knows, with the buffers of its arguments and results. */
  static class DefinedFunction {
    final int number;
    final ArrowWriter arguments;
    final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    final ArrowStreamWriter stream;
    final FrameInput message = new FrameInput();
    ArrowStreamReader reader;
    ColumnarBatch results;

    DefinedFunction(int number, StructType inputs) throws IOException {
      this.number = number;
      arguments = ArrowWriter.create(inputs, "UTC", true, false);
      stream = new ArrowStreamWriter(arguments.root(), null, bytes);
      stream.start();
      bytes.reset();  // the process knows the types
    }
  }

  /**
   * The process that calls the Python functions of one task. The task waits for each result, so it reads the frames
   * itself: a thread between the two would cost each record another change of threads.
   */
  static class FunctionProcess extends PythonProcess {
    static final ConcurrentHashMap TASKS = new ConcurrentHashMap();
    final BufferAllocator allocator;
    final HashMap defined = new HashMap();

    FunctionProcess(PythonProgram program) throws IOException {
      super(program, false);
      allocator = ArrowUtils.rootAllocator().newChildAllocator("ottla-functions", 0L, Long.MAX_VALUE);
    }

    static FunctionProcess ofTask(PythonProgram program) throws IOException {
      TaskContext task = TaskContext.get();
      Long id = Long.valueOf(task.taskAttemptId());
      FunctionProcess known = (FunctionProcess) TASKS.get(id);
      if (known != null) return known;
      PythonProcess waiting = Pool.take(program.key);
      FunctionProcess taken = waiting != null ? (FunctionProcess) waiting : new FunctionProcess(program);
      TASKS.put(id, taken);
      FunctionRelease release = new FunctionRelease(program.key, id);
      task.addTaskCompletionListener((TaskCompletionListener) release);
      task.addTaskInterruptListener((TaskInterruptListener) release);
      return taken;
    }

    Object call(PythonCall function, InternalRow row) throws IOException {
      DefinedFunction known = (DefinedFunction) defined.get(function.key);
      if (known == null) known = define(function);
      known.arguments.write(row);
      known.arguments.finish();
      known.stream.writeBatch();
      send('C', numbered(known.number, known.bytes.toByteArray()));
      known.bytes.reset();
      known.arguments.reset();
      known.message.set(answer(), 1);
      known.reader.loadNextBatch();
      known.results.setNumRows(1);
      InternalRow made = known.results.getRow(0);
      return made.isNullAt(0) ? null : made.get(0, function.result);
    }

    DefinedFunction define(PythonCall function) throws IOException {
      DefinedFunction made = new DefinedFunction(defined.size(), function.inputs);
      send('D', numbered(made.number, function.pickled));
      made.message.set(answer(), 1);
      made.reader = new ArrowStreamReader(made.message, allocator);
      made.results = new ColumnarBatch(
          new ColumnVector[] {new ArrowColumnVector(made.reader.getVectorSchemaRoot().getVector(0))});
      defined.put(function.key, made);
      return made;
    }

    byte[] answer() throws IOException {
      byte[] frame;
      try {
        frame = read();
      } catch (IOException closed) {
        throw failure();
      }
      if (frame[0] == 'E') throw reported(frame);
      return frame;
    }

    IOException failure() {
      TaskContext task = TaskContext.get();
      if (task != null) task.killTaskIfInterrupted();
      try {
        byte[] last = read();  // the process has ended, so this does not wait
        if (last[0] == 'E') return reported(last);
      } catch (IOException closed) {
        isFailed = true;
      }
      return super.failure();
    }

    /** Make the task's thread return from a call that may never end. */
    void interrupt() {
      isFailed = true;
      process.destroy();
    }

    static byte[] numbered(int number, byte[] body) {
      return ByteBuffer.allocate(4 + body.length).putInt(number).put(body).array();
    }

    void end() {
      super.end();
      try {
        for (Iterator each = defined.values().iterator(); each.hasNext(); ) {
          DefinedFunction function = (DefinedFunction) each.next();
          function.reader.close();
          function.arguments.root().close();
        }
        allocator.close();
      } catch (IOException closed) {
        isFailed = true;
      }
    }
  }

  static class FunctionRelease implements TaskCompletionListener, TaskInterruptListener {
    final String key;
    final Long task;

    FunctionRelease(String key, Long task) {
      this.key = key;
      this.task = task;
    }

    public void onTaskCompletion(TaskContext context) {
      FunctionProcess process = (FunctionProcess) FunctionProcess.TASKS.remove(task);
      if (process == null) return;
      boolean isWhole = process.isUsable() && !context.isFailed() && !context.isInterrupted();
      if (isWhole) Pool.give(key, process);
      else process.end();
    }

    public void onTaskInterrupted(TaskContext context, String reason) {
      FunctionProcess process = (FunctionProcess) FunctionProcess.TASKS.get(task);
      if (process != null) process.interrupt();
    }
  }
}
