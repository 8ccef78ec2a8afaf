package dev.edgewright.bench

/** One JSON object on one line. Keys keep their order; numbers here are integers only. */
fun jsonLine(vararg members: Pair<String, Any?>): String =
    members.joinToString(",", "{", "}") { (key, value) -> quoted(key) + ":" + json(value) }

private fun json(value: Any?): String =
    when (value) {
        null -> "null"
        is Boolean, is Int, is Long -> value.toString()
        is LongArray -> value.joinToString(",", "[", "]")
        else -> quoted(value.toString())
    }

/** Escapes what JSON demands, and halves of surrogate pairs, which UTF-8 cannot hold. */
private fun quoted(text: String): String =
    buildString(text.length + 2) {
        append('"')
        text.forEachIndexed { index, character ->
            when {
                character == '"' || character == '\\' -> append('\\').append(character)
                character < ' ' || isHalf(text, index) ->
                    append("\\u").append(character.code.toString(16).padStart(4, '0'))
                else -> append(character)
            }
        }
        append('"')
    }

private fun isHalf(text: String, index: Int): Boolean =
    when {
        text[index].isHighSurrogate() -> text.getOrNull(index + 1)?.isLowSurrogate() != true
        text[index].isLowSurrogate() -> text.getOrNull(index - 1)?.isHighSurrogate() != true
        else -> false
    }
