import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.cloud.Timestamp;
import com.google.cloud.spanner.Dialect;
import io.debezium.config.Configuration;
import io.debezium.connector.spanner.SpannerConnectorConfig;
import io.debezium.connector.spanner.SpannerSourceInfoStructMaker;
import io.debezium.connector.spanner.context.source.SourceInfo;
import io.debezium.connector.spanner.db.metadata.SchemaRegistry;
import io.debezium.connector.spanner.db.metadata.TableId;
import io.debezium.connector.spanner.db.model.Mod;
import io.debezium.connector.spanner.db.model.schema.Column;
import io.debezium.connector.spanner.db.model.schema.TableSchema;
import io.debezium.connector.spanner.schema.KafkaSpannerTableSchema;
import io.debezium.connector.spanner.schema.KafkaSpannerTableSchemaFactory;
import io.debezium.data.Envelope;
import io.debezium.schema.SchemaNameAdjuster;
import io.debezium.spi.topic.TopicNamingStrategy;
import java.io.File;
import java.lang.reflect.Proxy;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Writes records.json: what the classes of Debezium's connector for Spanner make of the changes in
 * changes.json. README.md says how it is run.
 */
public class WriteRecords {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode given = JSON.readTree(new File(args[0]));
        SpannerConnectorConfig config = new SpannerConnectorConfig(Configuration.from(Map.of(
                "name", given.get("prefix").asText(),
                "gcp.spanner.project.id", given.get("project").asText(),
                "gcp.spanner.instance.id", given.get("instance").asText(),
                "gcp.spanner.database.id", given.get("database").asText(),
                "gcp.spanner.change.stream", given.get("change_stream").asText())));
        String name = given.get("table").asText();
        List<Column> columns = new ArrayList<>();
        for (JsonNode one : given.get("columns")) {
            columns.add(Column.create(one.get("name").asText(), one.get("ddl").asText(),
                    one.get("is_key").asBoolean(), one.get("ordinal").asLong(),
                    !one.get("is_key").asBoolean(), Dialect.GOOGLE_STANDARD_SQL));
        }
        TableSchema table = new TableSchema(name, columns);
        SchemaRegistry registry = new SchemaRegistry("", null, () -> { }) {
            @Override
            public synchronized TableSchema getWatchedTable(TableId id) {
                return table;
            }
        };
        @SuppressWarnings("unchecked")
        TopicNamingStrategy<TableId> topics = (TopicNamingStrategy<TableId>) Proxy.newProxyInstance(
                WriteRecords.class.getClassLoader(), new Class<?>[] {TopicNamingStrategy.class},
                (proxy, method, arguments) -> given.get("prefix").asText() + "." + name);
        SpannerSourceInfoStructMaker maker = new SpannerSourceInfoStructMaker();
        maker.init("spanner", "3.6.3.Final", config);
        KafkaSpannerTableSchema schema = new KafkaSpannerTableSchemaFactory(topics,
                SchemaNameAdjuster.AVRO, registry, maker.schema()).getTableSchema(TableId.getTableId(name));
        Envelope envelope = schema.getEnvelopeSchema();

        ObjectNode found = JSON.createObjectNode();
        found.put("topic", topics.dataChangeTopic(schema.id()));
        found.set("key_schema", shown(schema.keySchema(), null).get("schema"));
        found.set("value_schema", shown(envelope.schema(), null).get("schema"));
        ArrayNode records = found.putArray("records");
        for (JsonNode change : given.get("changes")) {
            Mod mod = new Mod(change.get("mod_number").asInt(), change.get("keys"),
                    change.get("old_values"), change.get("new_values"));
            Instant at = Timestamp.parseTimestamp(given.get("commit_timestamp").asText())
                    .toSqlTimestamp().toInstant();
            Struct source = maker.struct(new SourceInfo(config, name, at, at, null,
                    given.get("server_transaction_id").asText(),
                    Long.parseLong(given.get("record_sequence").asText()), null,
                    given.get("number_of_records_in_transaction").asLong(),
                    given.get("transaction_tag").asText(), false,
                    change.get("value_capture_type").asText(), given.get("partition_token").asText(),
                    change.get("mod_number").asInt(), true,
                    given.get("number_of_partitions_in_transaction").asLong()));
            Struct value = switch (change.get("mod_type").asText()) {
                case "INSERT" -> envelope.create(schema.getNewValueStructFromMod(mod), source, at);
                case "UPDATE" -> envelope.update(schema.getOldValueStructFromMod(mod),
                        schema.getNewValueStructFromMod(mod), source, at);
                default -> envelope.delete(schema.getOldValueStructFromMod(mod), source, at);
            };
            ObjectNode record = records.addObject();
            record.set("key", shown(schema.keySchema(), schema.getKeyStructFromMod(mod)).get("payload"));
            record.set("value", shown(envelope.schema(), value).get("payload"));
        }
        System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(found));
    }

    private static JsonNode shown(Schema schema, Struct value) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), false);
        if (value == null) {
            return JSON.createObjectNode().set("schema", converter.asJsonSchema(schema));
        }
        return JSON.readTree(converter.fromConnectData("t", schema, value));
    }
}
